"""Runs that end, and who is to hear of it.

Invariant: a run ends once, with one reason. Its result waits for the session that spawned it, or
is kept where that is a run which was stopped or had ended without it: nothing begins there again.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, bindparam, select, update

from perdure.delegation.results import RunResult
from perdure.domain.labels import Label
from perdure.domain.runs import RunState
from perdure.domain.states import EventKind
from perdure.store.clock import now
from perdure.store.delegation_tables import runs, waits
from perdure.store.kept_results import keep
from perdure.store.runs import Address, Run, of_session
from perdure.store.session_writer import SessionWriter
from perdure.store.tables import sessions

_WAITERS = (
    select(sessions.c.session_key, sessions.c.agent)
    .join(waits, waits.c.session_key == sessions.c.session_key)
    .where(waits.c.target_key == bindparam("target"), waits.c.until > bindparam("at"))
    .distinct()
)


def end(parent: SessionWriter, run: Run, result: RunResult, label: Label) -> None:
    """End a run of this session with its result, at the level of what it tells."""
    parent.connection.execute(
        update(runs)
        .where(runs.c.run_id == run.run_id)
        .values(
            state=RunState.ENDED,
            end_reason=result.end_reason,
            result=result.model_dump(mode="json"),
            label=label,
            reserved_tokens=0,
            reserved_cost=0.0,
            ended_at=now(),
        )
    )
    parent.tell(
        EventKind.RUN_ENDED,
        run_id=run.run_id,
        session_key=run.session_key,
        reason=result.end_reason,
    )
    if run.handed_at is None and is_left_behind(
        of_session(parent.connection, parent.key), run.queued_at
    ):
        keep(parent, run.run_id, "run ended")


def is_left_behind(above: Run | None, queued_at: datetime) -> bool:
    """Whether the run `above` takes nothing any more from one that it spawned at that moment."""
    if above is None:
        return False
    return above.state is RunState.STOPPING or (
        # A session goes on after its run, and what it spawns then is its own.
        above.ended_at is not None and queued_at < above.ended_at
    )


def listeners(connection: Connection, run: Run) -> tuple[Address, ...]:
    """Who is to be woken when a run has ended or was replaced: its parent, which takes the result
    and gives the place to the next, and whoever waits for it."""
    found = [
        Address(session_key=row.session_key, agent=row.agent)
        for row in connection.execute(_WAITERS, {"target": run.session_key, "at": now()})
    ]
    above = of_session(connection, run.parent_key)
    if not is_left_behind(above, run.queued_at):
        agent = connection.scalar(
            select(sessions.c.agent).where(sessions.c.session_key == run.parent_key)
        )
        if agent is not None:
            found.append(Address(session_key=run.parent_key, agent=agent))
    return tuple(dict.fromkeys(found))
