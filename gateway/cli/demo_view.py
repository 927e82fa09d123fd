"""The demo on a terminal: what happens as it happens, then the verdict.

Invariant: it shows what it is told and judges nothing; figures come from the report alone.
"""

from __future__ import annotations

import time

from rich.console import Console
from rich.style import Style
from rich.table import Table

from gateway.cli.turn_view import BAD, DIM, GOOD, WARN, TurnView
from gateway.cli.words import one_line, shown_arguments
from gateway.demo.performance import Report
from gateway.demo.stage import AGENT
from gateway.demo.story import LEAD
from gateway.live import LiveItem
from gateway.local import StackInfo
from perdure.config import Settings
from perdure.domain.messages import Role
from perdure.models import REHEARSAL
from perdure.store.transcript import HistoryMessage

_TITLE = Style(bold=True)
#: Characters of a message in the shortened transcript.
_LINE = 100


class Silence:
    """Tells nothing: for scripts, which read the report."""

    def ready(self, info: StackInfo) -> None:
        """Nothing."""

    def chapter(self, title: str) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def asked(self, text: str) -> None:
        """Nothing."""

    def item(self, item: LiveItem) -> None:
        """Nothing."""


class DemoView:
    """A `Narrator` that writes to a terminal."""

    def __init__(self, out: Console, settings: Settings) -> None:
        self._out = out
        self._view = TurnView(out)
        self._began = time.monotonic()
        self._chapters = 0
        models = settings.agent(AGENT).models
        out.print("Perdure demo", style=_TITLE)
        out.print(f"home   {settings.home}", style=DIM)
        if models[0] == REHEARSAL:
            out.print(
                "model  rehearsal: no language model, it follows the lines that begin with /. "
                "PERDURE_MODEL names a real one.",
                style=DIM,
            )
        else:
            out.print(f"model  {', '.join(models)}", style=DIM)

    def ready(self, info: StackInfo) -> None:
        """Where to look meanwhile."""
        self._out.print(f"UI     {info.ui}  (Temporal's, while this runs)")
        workers = ", ".join(map(str, info.pids.workers))
        self.note(f"Temporal is process {info.pids.temporal}, the worker is {workers}")

    def chapter(self, title: str) -> None:
        """A headline."""
        self._chapters += 1
        self._view.end_line()
        self._out.print()
        self._out.print(f"{self._chapters}. {title}", style=_TITLE)
        self._out.print()

    def note(self, text: str) -> None:
        """A line with the time, red for a kill."""
        style = BAD if text.startswith("✗") else WARN
        self._view.note(f"{time.monotonic() - self._began:.1f} s · {text}", style)

    def asked(self, text: str) -> None:
        """What the agent was asked."""
        self._view.echo(text)

    def item(self, item: LiveItem) -> None:
        """What the agent does."""
        self._view.show(item)

    def report(self, report: Report) -> None:
        """The shortened transcript, the checks, the verdict."""
        self._view.end_line()
        self._headline(f"The transcript of {LEAD} as the store has it, shortened")
        for message in report.transcript:
            for line in _shortened(message):
                self._out.print(f"  {line}", style=DIM)
        self._headline(
            "What was checked, in the store, in Temporal's history and in the audit trail"
        )
        self._out.print(_checks(report), soft_wrap=False)
        self._out.print()
        for left_out in report.left_out:
            self._out.print(f"Left out: {left_out}.", style=WARN)
        if report.problem is not None:
            self._out.print(f"The story did not come to its end: {report.problem}", style=BAD)
        held = sum(check.held for check in report.checks)
        verdict = f"{held} of {len(report.checks)} promises were held, in {report.seconds:g} s."
        self._out.print(verdict, style=GOOD if report.held else BAD)

    def _headline(self, title: str) -> None:
        self._out.print()
        self._out.print(title, style=_TITLE)
        self._out.print()


def _shortened(message: HistoryMessage) -> list[str]:
    lines = []
    if message.text:
        who = {Role.USER: "›", Role.ASSISTANT: " ", Role.TOOL: "  ="}[message.role]
        lines.append(f"{who} {one_line(message.text, _LINE)}")
    lines += [
        one_line(f"  → {call.name} {shown_arguments(call.arguments)}", _LINE)
        for call in message.tool_calls
    ]
    return lines


def _checks(report: Report) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 1, 0))
    for _ in range(3):
        table.add_column(overflow="fold")
    for check in report.checks:
        mark, style = ("✓", GOOD) if check.held else ("✗", BAD)
        table.add_row(mark, check.promise, check.found, style=None if check.held else style)
    return table
