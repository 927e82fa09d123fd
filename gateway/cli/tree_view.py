"""Sessions and their runs as lines of text.

Invariant: what a session or a model wrote passes `printable` on its way here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from rich.text import Text

from gateway.cli.outline import BOLD, PLAIN, Row, branches, drawn, one_row
from gateway.cli.turn_view import BAD, DIM, GOOD, WARN
from gateway.cli.words import ago, duration, one_line, plural, printable, run_state
from perdure.domain.runs import RunStatus
from perdure.domain.states import SessionState
from perdure.store.run_trees import MOST, Forest, RunNode, SessionTree

_TASK = 120
_TITLES = ("state", "step", "last tool", "tokens", "time", "task")
_RIGHT = {"step", "tokens", "time"}
_STYLES = {
    RunStatus.QUEUED: WARN,
    RunStatus.RUNNING: GOOD,
    RunStatus.STOPPING: WARN,
    RunStatus.COMPLETED: DIM,
    RunStatus.FAILED: BAD,
    RunStatus.KILLED: BAD,
}
_SESSION_STYLES = {SessionState.RUNNING: GOOD, SessionState.WAITING: WARN}


def lines(forest: Forest, now: datetime | None = None) -> list[Text]:
    """The forest, a line for each session and run, under a line of titles."""
    now = now or datetime.now(UTC)
    if not forest.sessions:
        return [Text("No session is at work, and no run has ended lately.")]
    rows: list[Row] = []
    for session in forest.sessions:
        rows += [_session(session), *_below(session.runs, "", now)]
    told = [one_row(Text(line, DIM)) for line in _left_out(forest)]
    return drawn("session, run", _TITLES, _RIGHT, rows) + told


def _session(session: SessionTree) -> Row:
    cells = (
        session.state.value,
        f"turn {session.turns}",
        printable(session.last_tool or ""),
        f"{session.tokens:,}",
        ago(session.last_activity),
        printable(session.agent),
    )
    style = _SESSION_STYLES.get(session.state, PLAIN)
    return Row("", printable(session.session_key), cells, style, BOLD)


def _below(runs: tuple[RunNode, ...], guide: str, now: datetime) -> Iterator[Row]:
    for run, here, below in branches(runs, guide):
        cells = (
            run_state(run.status, run.end_reason),
            f"{run.step}/{run.max_steps}",
            printable(run.last_tool or ""),
            f"{run.tokens:,}",
            _time(run, now),
            one_line(run.task, _TASK),
        )
        yield Row(here, printable(run.run_id), cells, _STYLES[run.status])
        yield from _below(run.runs, below, now)


def _time(run: RunNode, now: datetime) -> str:
    """How long a run took, or is taking; how long it waits."""
    begun = run.started_at or run.queued_at
    return duration(((run.ended_at or now) - begun).total_seconds())


def _left_out(forest: Forest) -> Iterator[str]:
    if forest.cut:
        yield f"There are more runs than the {MOST:,} shown; name a session to see its own."
    if len(forest.sessions) < forest.total:
        yield f"{len(forest.sessions)} of {plural(forest.total, 'session')}; see --limit, --offset."
