"""The demo on a terminal: what happens as it happens, then the verdict.

Invariant: it shows what it is told and judges nothing; figures come from the report alone.
"""

from __future__ import annotations

import time
from collections import defaultdict

from rich.cells import set_cell_size
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from gateway.cli.demo_beside import Beside
from gateway.cli.tables import columns, print_table
from gateway.cli.turn_view import BAD, DIM, GOOD, WARN, TurnView
from gateway.cli.words import one_line, printable
from gateway.demo.directives import is_directive, words_of
from gateway.demo.performance import Report
from gateway.demo.stage import models_of
from gateway.live import LiveItem, RunChanged
from gateway.local import StackInfo
from perdure.config import Settings
from perdure.models import REHEARSAL

_TITLE = Style(bold=True)
#: Characters of another session's message that are shown.
_WORDS = 200


class Silence:
    """Tells nothing: for scripts, which read the report."""

    def ready(self, info: StackInfo) -> None:
        """Nothing."""

    def chapter(self, title: str) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def asked(self, session_key: str, text: str, sender: str | None) -> None:
        """Nothing."""

    def item(self, session_key: str, item: LiveItem) -> None:
        """Nothing."""

    def beside(self, name: str, item: LiveItem) -> None:
        """Nothing."""


class DemoView:
    """A `Narrator` that writes to a terminal."""

    def __init__(self, out: Console, settings: Settings) -> None:
        self._out = out
        #: One for each session, since each has its own turns; and one for notes.
        self._views: defaultdict[str, TurnView] = defaultdict(lambda: TurnView(out))
        self._beside = Beside()
        self._began = time.monotonic()
        self._chapters = 0
        models = models_of(settings)
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
        self._turn_to()
        self._out.print()
        self._out.print(f"{self._chapters}. {title}", style=_TITLE)
        self._out.print()

    def note(self, text: str) -> None:
        """A line with the time, red for a kill."""
        style = BAD if text.startswith("✗") else WARN
        self._turn_to().note(f"{time.monotonic() - self._began:.1f} s · {text}", style)

    def asked(self, session_key: str, text: str, sender: str | None) -> None:
        """What a session was asked: words in full, directives as far as the line goes."""
        self._turn_to(session_key)
        if sender is not None:
            self._out.print(Text(f"‹ {sender}: {one_line(words_of(text), _WORDS)}", DIM))
            return
        mark = "› "
        for line in printable(text).split("\n"):
            if is_directive(line):
                self._out.print(Text(mark + self._cut(line), DIM))
            else:
                self._out.print(Text(mark + line, _TITLE))
            mark = "  "

    def item(self, session_key: str, item: LiveItem) -> None:
        """What a session does; its runs are told of by their names."""
        if not isinstance(item, RunChanged):
            self._turn_to(session_key).show(item)

    def beside(self, name: str, item: LiveItem) -> None:
        """What somebody else does, in one line where there is something to tell."""
        line = self._beside.told(name, item)
        if line is not None:
            self._turn_to()
            self._out.print(Text(line, DIM))

    def report(self, report: Report) -> None:
        """The runs, the report, the checks, the verdict."""
        self._turn_to()
        if report.runs:
            self._headline("What became of every run")
            print_table(self._out, _runs(report))
        if report.report:
            self._headline("The report, as the lead wrote it")
            for line in report.report.strip().split("\n"):
                self._out.print(Text(f"  {printable(line)}", DIM))
        self._headline(
            "What was checked, in the store, in Temporal's history and in the audit trail"
        )
        self._out.print(_checks(report), soft_wrap=False)
        for left_out in report.left_out:
            self._out.print(f"Left out: {left_out}.", style=WARN)
        if report.problem is not None:
            self._out.print(f"The story did not come to its end: {report.problem}", style=BAD)
        held = sum(check.held for check in report.checks)
        verdict = f"{held} of {len(report.checks)} promises were held, in {report.seconds:g} s."
        self._out.print(verdict, style=GOOD if report.held else BAD)

    def _turn_to(self, session_key: str = "") -> TurnView:
        """The view of a session, or that of notes, when no other one has a line open."""
        for key, view in self._views.items():
            if key != session_key:
                view.end_line()
        return self._views[session_key]

    def _cut(self, line: str) -> str:
        room = max(20, self._out.width - 3)
        return line if len(line) <= room else set_cell_size(line, room - 1).rstrip() + "…"

    def _headline(self, title: str) -> None:
        self._out.print()
        self._out.print(title, style=_TITLE)
        self._out.print()


def _runs(report: Report) -> Table:
    numbers = ("steps", "tokens", "seconds")
    table = columns("run on", "state", *numbers, "what happened to it", right=numbers)
    for run in report.runs:
        figures = (str(run.steps), f"{run.tokens:,}", f"{run.seconds:.1f}")
        table.add_row(run.document, run.state, *figures, "\n".join(run.happened))
    return table


def _checks(report: Report) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 1, 0))
    for _ in range(3):
        table.add_column(overflow="fold")
    for check in report.checks:
        mark, style = ("✓", GOOD) if check.held else ("✗", BAD)
        table.add_row(mark, check.promise, check.found, style=None if check.held else style)
    return table
