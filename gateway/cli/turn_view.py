"""A turn on a terminal, as it happens: text as it comes, tool calls as they run, what it cost.

Invariant: everything a session says passes `printable` on its way to the screen, so no model and
no tool can send the terminal an escape sequence.
"""

from __future__ import annotations

import time

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.style import Style
from rich.text import Text

from gateway.cli.words import (
    asked_to_approve,
    figures,
    one_line,
    printable,
    run_changed,
    shown_arguments,
)
from gateway.live import (
    ApprovalAsked,
    ApprovalSettled,
    LiveItem,
    MessageDropped,
    MessageJoined,
    Restart,
    Retrying,
    RunChange,
    RunChanged,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from perdure.domain.runs import EndReason
from perdure.domain.states import ToolStatus, TurnState
from perdure.store.transcript import TurnResult

DIM = Style(dim=True)
GOOD = Style(color="green")
BAD = Style(color="red")
WARN = Style(color="yellow")
TOOL = Style(color="cyan")

_MARKS = {
    ToolStatus.OK: ("✓", GOOD),
    ToolStatus.ERROR: ("✗", BAD),
    ToolStatus.UNKNOWN: ("?", WARN),
}
#: Where a tool call is: its turn, its step, its number.
_Place = tuple[int, int, int]

#: Columns kept free after a tool call for its mark and its time.
_ROOM = 16


class TurnView:
    """Writes the items of a live session to a terminal.

    A line that waits (a tool at work, a model thinking) stays open and is written over by what
    comes of it. Text that turns out void is taken back while all of it is still on the screen.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        #: What was written since the step under way began to speak; None while it is silent.
        self._tail: str | None = None
        self._at_start = True
        #: The call whose line is open at the bottom of the screen, or that something is awaited.
        self._open: _Place | bool = False
        self._calls: dict[_Place, str] = {}
        self._asides: list[tuple[str, Style]] = []
        #: When the person sent what no turn has taken yet, and when each turn under way began: a
        #: session that waits for another one answers it in a turn of its own, beside.
        self._sent: float | None = None
        self._began: dict[int, float] = {}

    def show(self, item: LiveItem) -> None:
        """Write one item."""
        if not isinstance(item, TextDelta | Restart | MessageJoined | RunChanged):
            self._tell_asides()
        match item:
            case TurnStarted():
                self._began[item.turn] = self._sent or time.monotonic()
                self._sent = None
                self._tail = None
                self.wait("thinking…")
            case TextDelta():
                self._say(item.text)
            case Restart():
                self._take_back()
                self._tell_asides()
                self.wait("thinking…")
            case ToolStarted():
                self._tool_started(item)
            case ToolEnded():
                self._tool_ended(item)
            case ApprovalAsked():
                self.note(asked_to_approve(item.tool, item.approval_id), WARN)
                self.wait("waiting for a person…")
            case ApprovalSettled():
                self.note(f"{item.approval_id} is {item.state}")
            case Retrying():
                self.note(f"⟳ {item.reason} · next try in {item.delay:g} s", WARN)
            case TurnEnded():
                self._turn_ended(item.result)
            case MessageDropped():
                self.note(f"message {item.message_id} was discarded ({item.reason})")
            case MessageJoined():
                self.aside(f"message {item.message_id} joins the turn")
            case RunChanged():
                ended = item.change is RunChange.ENDED and item.reason != EndReason.COMPLETED
                self.aside(f"⑂ {run_changed(item)}", WARN if ended else DIM)
        self._console.file.flush()

    def echo(self, text: str) -> None:
        """What the person said."""
        self._sent = time.monotonic()
        self.end_line()
        self._tail = None
        first, *rest = printable(text).split("\n")
        self._write("\n".join([f"› {first}", *(f"  {line}" for line in rest)]), Style(bold=True))
        self.end_line()

    def note(self, text: str, style: Style = DIM) -> None:
        """A line of its own about the conversation."""
        self.end_line()
        self._write(" ".join(printable(text).split()), style)
        self.end_line()
        self._console.file.flush()

    def aside(self, text: str, style: Style = DIM) -> None:
        """A note on something beside the turn; while an answer is being said, it waits."""
        if self._tail:
            self._asides.append((text, style))
            return
        waits = self._open is True
        self.note(text, style)
        if waits:
            self.wait("thinking…")

    def _tell_asides(self) -> None:
        asides, self._asides = self._asides, []
        for text, style in asides:
            self.note(text, style)

    def wait(self, for_what: str) -> None:
        """A line that stands until something comes; nowhere but on a terminal."""
        self.end_line()
        if self._console.is_terminal:
            self._console.print(Text(for_what, DIM), end="")
            self._console.file.flush()
            self._open = True

    def end_line(self) -> None:
        """Bring the cursor to the beginning of a line."""
        if self._open is True:
            self._console.file.write("\r\x1b[2K")
        elif not self._at_start:
            self._write("\n")
        self._open = False

    def _write(self, text: str, style: Style | None = None) -> None:
        if not text:
            return
        if style is None:
            self._console.file.write(text)
        else:
            self._console.print(Text(text, style), end="")
        self._at_start = text.endswith("\n")
        if self._tail is not None:
            self._tail += text

    def _say(self, text: str) -> None:
        if self._tail is None or self._open is not False:
            self.end_line()
        if self._tail is None:
            text = text.lstrip("\n")
            self._tail = "" if text else None
        self._write(printable(text))

    def _take_back(self) -> None:
        if self._tail is None:
            return
        self.end_line()
        width, height = self._console.size
        rows = sum(max(1, -(-cell_len(line) // width)) for line in self._tail.split("\n"))
        self._tail = None
        if not self._console.is_terminal or rows > height:
            self.note("↻ the answer so far is void; it is given anew")
        else:
            self._console.file.write("\r" + (f"\x1b[{rows - 1}A" if rows > 1 else "") + "\x1b[J")
            self._at_start = True

    def _tool_started(self, item: ToolStarted) -> None:
        self.end_line()
        self._tail = None
        line = f"{printable(item.tool)} {shown_arguments(item.arguments)}".rstrip()
        # A line that wraps could not be written over.
        room = max(20, self._console.width - _ROOM)
        line = line if cell_len(line) <= room else set_cell_size(line, room - 1) + "…"
        place = (item.turn, item.step, item.call)
        self._calls[place] = line
        self._write(f"→ {line}", TOOL)
        self._open = place

    def _tool_ended(self, item: ToolEnded) -> None:
        place = (item.turn, item.step, item.call)
        line = self._calls.pop(place, printable(item.tool))
        if self._open == place and self._console.is_terminal:
            self._console.file.write("\r\x1b[2K")
            self._open = False
        else:
            self.end_line()
        mark, style = _MARKS[item.status]
        self._write(f"{mark} {line}", style)
        self._write("" if item.seconds is None else f" · {item.seconds:.2f} s", DIM)
        self.end_line()
        if item.error:
            self._write(f"  {one_line(item.error, 300)}", style)
            self.end_line()
        if not any(turn == item.turn for turn, _, _ in self._calls):
            self.wait("thinking…")

    def _turn_ended(self, result: TurnResult) -> None:
        self.end_line()
        self._tail = None
        self._calls = {at: line for at, line in self._calls.items() if at[0] != result.turn}
        if result.state is TurnState.INTERRUPTED:
            self.note("■ interrupted", WARN)
        elif result.error is not None:
            self.note(f"✗ {result.error.get('message')} {result.error.get('hint', '')}", BAD)
        began = self._began.pop(result.turn, None)
        took = None if began is None else time.monotonic() - began
        self.note(figures(result, took))
        self._write("\n")
