"""What a session has to do for its runs: give them places, hand over their results.

Invariant: asking twice changes nothing more. A result is handed over once: as the result of the
call that waits for it, or as a message, or told as kept where the session has begun anew.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, select

from perdure.delegation.handing import WITHHELD, unstarted
from perdure.delegation.results import message
from perdure.domain.delegation import Supervise, Supervision
from perdure.domain.envelopes import Envelope, Sender, SenderKind
from perdure.domain.labels import Label, can_flow
from perdure.domain.limits import Limits
from perdure.domain.messages import Frozen
from perdure.domain.runs import EndReason, RunState
from perdure.domain.states import EventKind, ToolStatus, TurnState
from perdure.store import mailbox
from perdure.store.addressing import Terms
from perdure.store.arrivals import arrive
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.delegation_tables import runs
from perdure.store.kept_results import RESULT, handed, keep
from perdure.store.run_ends import end, is_left_behind, listeners
from perdure.store.runs import UNDER_WAY, Address, Run, count, of_session, run_of, start
from perdure.store.session_writer import SessionWriter
from perdure.store.tables import mailbox as mailbox_table
from perdure.store.tables import sessions, tool_claims, turns
from perdure.store.withheld_results import withhold_result

#: Whether an agent may still be spawned by this session.
Allowed = Callable[[str], bool]


class Plan(Frozen):
    """What a session has to do, and who else is to be woken: whoever waits for a run that ended
    before it began."""

    supervision: Supervision
    wake: tuple[Address, ...] = ()


class SupervisionStore:
    """Plans for sessions with runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def plan(self, request: Supervise, terms: Terms, allowed: Allowed) -> Plan:
        """What there is to do now."""
        return await self._database.write(_plan, request, terms, allowed)


def _plan(connection: Connection, request: Supervise, terms: Terms, allowed: Allowed) -> Plan:
    key, limits = request.session_key, terms.limits
    mine = of_session(connection, key)
    stopping = mine is not None and mine.state is RunState.STOPPING
    with SessionWriter(connection, key) as session:
        dropped = _expire(session, limits)
        if not stopping:
            dropped += _promote(session, limits, allowed)
        for run in _unhanded(connection, key):
            if is_left_behind(mine, run):
                keep(session, run.run_id, "run ended")
            else:
                _hand_over(session, run, request.label, terms)
        arrived = arrive(session, terms)
    queue = _of(connection, key, RunState.QUEUED)
    supervision = Supervision(
        start=tuple(run.start for run in _unstarted(connection, key)),
        admit=(*_joining(connection, key), *arrived),
        stop=mine.stop if mine is not None and stopping else None,
        seconds=(queue[0].queue_until - now()).total_seconds() if queue else None,
        queued=len(queue),
        running=count(connection, key, UNDER_WAY),
        dropped=bool(dropped),
    )
    heard = [address for run in dropped for address in listeners(connection, run)]
    return Plan(
        supervision=supervision,
        wake=tuple(address for address in dict.fromkeys(heard) if address.session_key != key),
    )


def _expire(session: SessionWriter, limits: Limits) -> list[Run]:
    """End the runs that have waited too long; which."""
    late = [
        run
        for run in _of(session.connection, session.key, RunState.QUEUED)
        if run.queue_until <= now()
    ]
    for run in late:
        why = (
            f"It waited {limits.queue_seconds:g} s (limits.queue_seconds) for a place, and was "
            "not started."
        )
        _end_unstarted(session, run, why)
    return late


def _promote(session: SessionWriter, limits: Limits, allowed: Allowed) -> list[Run]:
    """Give places to those that wait, oldest first; which of them may not have one any more."""
    free = limits.children - count(session.connection, session.key, UNDER_WAY)
    refused = []
    for run in _of(session.connection, session.key, RunState.QUEUED):
        if free <= 0:
            break
        if allowed(run.agent):
            start(session, run.run_id, limits)
            free -= 1
        else:
            why = f"The agent {run.agent} may no longer be spawned here (allow_spawn)."
            _end_unstarted(session, run, why)
            refused.append(run)
    return refused


def _end_unstarted(session: SessionWriter, run: Run, why: str) -> None:
    end(session, run, unstarted(run.run_id, run.session_key, EndReason.FAILED, why), run.label)


def _hand_over(session: SessionWriter, run: Run, level: Label, terms: Terms) -> None:
    """Give the result of a run to this session, which is at `level`."""
    if run.sync and _awaited(session.connection, run):
        return  # the call that waits takes it
    # The result of the call is what the model was let read of it, be it a refusal.
    told = (ToolStatus.OK, ToolStatus.ERROR)
    taken = run.sync and _claim_of(session.connection, run) in told
    if not taken and run.epoch != session.row.epoch:
        keep(session, run.run_id, "reset")
        return
    if not taken:
        _post(session, run, level, terms)
    handed(session.connection, run.run_id)


def _post(session: SessionWriter, run: Run, level: Label, terms: Terms) -> None:
    assert run.result is not None, "it has ended"
    flows = can_flow(run.label, level)
    if not flows:
        session.tell(EventKind.RUN_KEPT, run_id=run.run_id, reason="label")
        withhold_result(session, run, terms)
    envelope = Envelope(
        message_id=f"{RESULT}{run.run_id}",
        sender=Sender(kind=SenderKind.SESSION, id=run.session_key),
        label=run.label if flows else Label.PUBLIC,
        joins=True,
    )
    text = message(run.result, run.agent) if flows else WITHHELD
    mailbox.post(session.connection, session.key, envelope, text)


def _awaited(connection: Connection, run: Run) -> bool:
    """Whether the call that spawned a run is of a turn under way, and has no result."""
    turn = connection.scalar(
        select(turns.c.state).where(
            turns.c.session_key == run.parent_key, turns.c.turn == run.parent_turn
        )
    )
    return turn == TurnState.RUNNING and _claim_of(connection, run) is None


def _claim_of(connection: Connection, run: Run) -> str | None:
    return connection.scalar(
        select(tool_claims.c.status).where(
            tool_claims.c.session_key == run.parent_key,
            tool_claims.c.turn == run.parent_turn,
            tool_claims.c.step == run.parent_step,
            tool_claims.c.call == run.parent_call,
        )
    )


def _of(connection: Connection, parent_key: str, state: RunState) -> list[Run]:
    rows = connection.execute(
        select(runs)
        .where(runs.c.parent_key == parent_key, runs.c.state == state)
        .order_by(runs.c.queued_at, runs.c.run_id)
    )
    return [run_of(row) for row in rows]


def _unhanded(connection: Connection, parent_key: str) -> list[Run]:
    rows = connection.execute(
        select(runs)
        .where(
            runs.c.parent_key == parent_key,
            runs.c.state == RunState.ENDED,
            runs.c.handed_at.is_(None),
        )
        .order_by(runs.c.ended_at, runs.c.run_id)
    )
    return [run_of(row) for row in rows]


def _unstarted(connection: Connection, parent_key: str) -> list[Run]:
    """Runs that have their place, and whose workflow has not begun their first turn."""
    rows = connection.execute(
        select(runs)
        .join(sessions, sessions.c.session_key == runs.c.session_key)
        .where(
            runs.c.parent_key == parent_key,
            runs.c.state.in_(UNDER_WAY),
            sessions.c.turn == 0,
        )
        .order_by(runs.c.started_at, runs.c.run_id)
    )
    return [run_of(row) for row in rows]


def _joining(connection: Connection, session_key: str) -> tuple[Envelope, ...]:
    """What waits to join a turn, with all that was handed over just now."""
    rows = connection.execute(
        select(mailbox_table)
        .where(mailbox_table.c.session_key == session_key, mailbox_table.c.joins)
        .order_by(mailbox_table.c.at, mailbox_table.c.message_id)
    )
    return tuple(mailbox.envelope_of(row) for row in rows)
