"""Sessions and their runs as lines of text.

Invariant: one line each, its id whole and at the left; where there is no room, what is least
needed is cut, at the right.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from gateway.cli.turn_view import BAD, DIM, GOOD, WARN
from gateway.cli.words import ago, duration, one_line, plural, printable, run_state
from perdure.domain.runs import RunStatus
from perdure.domain.states import SessionState
from perdure.store.run_trees import MOST, Forest, RunNode, SessionTree

_TASK = 120
_BOLD = Style(bold=True)
_STYLES = {
    RunStatus.QUEUED: WARN,
    RunStatus.RUNNING: GOOD,
    RunStatus.STOPPING: WARN,
    RunStatus.COMPLETED: DIM,
    RunStatus.FAILED: BAD,
    RunStatus.KILLED: BAD,
}
_SESSION_STYLES = {SessionState.RUNNING: GOOD, SessionState.WAITING: WARN}


class _Row(NamedTuple):
    """One line: `guide` leads from the row above to `name`."""

    guide: str
    name: str
    style: Style
    cells: tuple[str, ...]
    cell_style: Style | None


def lines(forest: Forest, now: datetime | None = None) -> list[Text]:
    """The forest, a line for each session and run, under a line of titles."""
    now = now or datetime.now(UTC)
    if not forest.sessions:
        return [Text("No session is at work, and no run has ended lately.")]
    rows = [_Row("", "session, run", DIM, _TITLES, DIM)]
    for session in forest.sessions:
        rows += [_session(session), *_below(session.runs, "", now)]
    left = max(cell_len(row.guide + row.name) for row in rows)
    widths = [max(cell_len(row.cells[index]) for row in rows) for index in range(len(_TITLES) - 1)]
    found = [_line(row, left, widths) for row in rows]
    return found + [_cut(Text(told, DIM)) for told in _left_out(forest)]


_TITLES = ("state", "step", "last tool", "tokens", "time", "task")
#: Columns of numbers, which stand at the right.
_RIGHT = {"step", "tokens", "time"}


def _session(session: SessionTree) -> _Row:
    cells = (
        session.state.value,
        f"turn {session.turns}",
        printable(session.last_tool or ""),
        f"{session.tokens:,}",
        ago(session.last_activity),
        printable(session.agent),
    )
    style = _SESSION_STYLES.get(session.state)
    return _Row("", printable(session.session_key), _BOLD, cells, style)


def _below(runs: tuple[RunNode, ...], guide: str, now: datetime) -> Iterator[_Row]:
    for run in runs:
        last = run is runs[-1]
        cells = (
            run_state(run.status, run.end_reason),
            f"{run.step}/{run.max_steps}",
            printable(run.last_tool or ""),
            f"{run.tokens:,}",
            _time(run, now),
            one_line(run.task, _TASK),
        )
        name = printable(run.run_id)
        yield _Row(guide + ("└─ " if last else "├─ "), name, Style(), cells, _STYLES[run.status])
        yield from _below(run.runs, guide + ("   " if last else "│  "), now)


def _time(run: RunNode, now: datetime) -> str:
    """How long a run took, or is taking; how long it waits."""
    begun = run.started_at or run.queued_at
    return duration(((run.ended_at or now) - begun).total_seconds())


def _line(row: _Row, left: int, widths: list[int]) -> Text:
    line = Text()
    line.append(row.guide, DIM)
    line.append(row.name, row.style)
    line.append(" " * (left - cell_len(row.guide + row.name)))
    for title, cell, width in zip(_TITLES, row.cells, [*widths, 0], strict=True):
        space = " " * (width - cell_len(cell))
        style = row.cell_style if title == "state" or row.cell_style is DIM else None
        line.append("  " + (space + cell if title in _RIGHT else cell + space), style)
    line.rstrip()
    return _cut(line)


def _cut(line: Text) -> Text:
    """The line, to be cut where it does not fit into one."""
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _left_out(forest: Forest) -> Iterator[str]:
    if forest.cut:
        yield f"There are more runs than the {MOST:,} shown; name a session to see its own."
    if len(forest.sessions) < forest.total:
        yield f"{len(forest.sessions)} of {plural(forest.total, 'session')}; see --limit, --offset."
