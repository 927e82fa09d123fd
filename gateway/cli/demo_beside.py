"""What sessions beside the one that is shown do, a line for each thing that is done.

Invariant: no text of a session reaches a line but through `one_line`.
"""

from __future__ import annotations

from gateway.cli.words import one_line, shown_arguments
from gateway.live import LiveItem, Retrying, ToolEnded, ToolStarted, TurnEnded
from perdure.domain.states import ToolStatus, TurnState

#: Columns of a name, and characters of what is told.
_NAME = 12
_TOLD = 110
_MARKS = {ToolStatus.OK: "✓", ToolStatus.ERROR: "✗", ToolStatus.UNKNOWN: "?"}


class Beside:
    """Puts items of several sessions into lines."""

    def __init__(self) -> None:
        self._arguments: dict[tuple[str, int, int, int], str] = {}

    def told(self, name: str, item: LiveItem) -> str | None:
        """The line for an item of the session that is called `name`; None for none."""
        match item:
            case ToolStarted():
                self._arguments[name, item.turn, item.step, item.call] = item.arguments
                return None
            case ToolEnded():
                arguments = self._arguments.pop((name, item.turn, item.step, item.call), "")
                what = f"{_MARKS[item.status]} {item.tool} {shown_arguments(arguments)}"
            case Retrying():
                what = f"⟳ {item.reason}"
            case TurnEnded() if item.result.state is TurnState.COMPLETED:
                what = f"“{item.result.text}”"
            case TurnEnded():
                what = f"■ {item.result.state}"
            case _:
                return None
        return f"    {name:<{_NAME}}│ {one_line(what, _TOLD)}"
