"""What a session has to do for its runs: give them places, hand over their results.

Invariant: asking twice changes nothing more. A result is handed over once: as the result of the
call that waits for it, or as a message, or told as kept where the session has begun anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from perdure.delegation.handing import WITHHELD, unstarted
from perdure.delegation.results import message
from perdure.domain.delegation import Supervise, Supervision
from perdure.domain.envelopes import Envelope, Sender, SenderKind
from perdure.domain.labels import Label, can_flow
from perdure.domain.limits import Limits
from perdure.domain.messages import Frozen
from perdure.domain.runs import EndReason, RunState
from perdure.domain.states import EventKind, ToolStatus, TurnState
from perdure.domain.steps import ChildStart
from perdure.store import mailbox
from perdure.store.addressing import Terms
from perdure.store.arrivals import arrive
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.delegation_tables import runs
from perdure.store.kept_results import RESULT, handed, keep
from perdure.store.run_ends import end, is_left_behind, listeners
from perdure.store.runs import UNDER_WAY, Address, Run, count, get, of_session, run_of, start
from perdure.store.session_writer import SessionWriter
from perdure.store.tables import mailbox as mailbox_table
from perdure.store.tables import sessions, tool_claims, turns
from perdure.store.withheld_results import withhold_result

# Statements are built once: building them anew costs more than running them.
_PARENT_IS = runs.c.parent_key == bindparam("key")
_QUEUED = (
    select(runs)
    .where(_PARENT_IS, runs.c.state == RunState.QUEUED)
    .order_by(runs.c.queued_at, runs.c.run_id)
)
#: Without packets and results: many may have ended whose calls have not taken them yet.
_UNHANDED = (
    select(
        *(runs.c[name] for name in ("run_id", "parent_key", "sync", "epoch", "queued_at")),
        *(runs.c[name] for name in ("parent_turn", "parent_step", "parent_call")),
    )
    .where(_PARENT_IS, runs.c.state == RunState.ENDED, runs.c.handed_at.is_(None))
    .order_by(runs.c.ended_at, runs.c.run_id)
)
#: Runs that have their place, and whose workflow has not begun their first turn.
_UNSTARTED = (
    select(*(runs.c[name] for name in ChildStart.model_fields))
    .join(sessions, sessions.c.session_key == runs.c.session_key)
    .where(_PARENT_IS, runs.c.state.in_(UNDER_WAY), sessions.c.turn == 0)
    .order_by(runs.c.started_at, runs.c.run_id)
)
#: What waits to join a turn, with all that was handed over just now.
_JOINING = (
    select(*(column for column in mailbox_table.c if column is not mailbox_table.c.text))
    .where(mailbox_table.c.session_key == bindparam("key"), mailbox_table.c.joins)
    .order_by(mailbox_table.c.at, mailbox_table.c.message_id)
)
_TURN = select(turns.c.state).where(
    turns.c.session_key == bindparam("key"), turns.c.turn == bindparam("of_turn")
)
_CLAIM = select(tool_claims.c.status).where(
    tool_claims.c.session_key == bindparam("key"),
    tool_claims.c.turn == bindparam("of_turn"),
    tool_claims.c.step == bindparam("of_step"),
    tool_claims.c.call == bindparam("of_call"),
)

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
    key = request.session_key
    mine = of_session(connection, key)
    stopping = mine is not None and mine.state is RunState.STOPPING
    with SessionWriter(connection, key) as session:
        dropped = _serve_queue(session, terms.limits, allowed, closed=stopping)
        for row in connection.execute(_UNHANDED, {"key": key}).all():
            if is_left_behind(mine, row.queued_at):
                keep(session, row.run_id, "run ended")
            else:
                _hand_over(session, row, request.label, terms)
        arrived = arrive(session, terms)
    queue = _queued(connection, key)
    supervision = Supervision(
        start=tuple(
            ChildStart.model_validate(dict(row._mapping))
            for row in connection.execute(_UNSTARTED, {"key": key})
        ),
        admit=(*map(mailbox.envelope_of, connection.execute(_JOINING, {"key": key})), *arrived),
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


def _serve_queue(
    session: SessionWriter, limits: Limits, allowed: Allowed, *, closed: bool
) -> list[Run]:
    """End the runs that have waited too long, and give places to the others, oldest first, unless
    it is `closed`; those that ended without having begun."""
    queue = _queued(session.connection, session.key)
    if not queue:
        return []
    free = limits.children - count(session.connection, session.key, UNDER_WAY)
    dropped = []
    for run in queue:
        if run.queue_until <= now():
            why = (
                f"It waited {limits.queue_seconds:g} s (limits.queue_seconds) for a place, and "
                "was not started."
            )
        elif closed or free <= 0:
            continue
        elif allowed(run.agent):
            start(session, run.run_id, limits)
            free -= 1
            continue
        else:
            why = f"The agent {run.agent} may no longer be spawned here (allow_spawn)."
        result = unstarted(run.run_id, run.session_key, EndReason.FAILED, why)
        end(session, run, result, run.label)
        dropped.append(run)
    return dropped


def _hand_over(session: SessionWriter, row: Row[Any], level: Label, terms: Terms) -> None:
    """Give the result of a run to this session, which is at `level`."""
    taken = False
    if row.sync:
        claim = session.connection.scalar(_CLAIM, _call(row))
        under_way = session.connection.scalar(_TURN, _call(row)) == TurnState.RUNNING
        if under_way and claim is None:
            return  # the call that waits takes it
        # The result of the call is what the model was let read of it, be it a refusal.
        taken = claim in (ToolStatus.OK, ToolStatus.ERROR)
    if not taken and row.epoch != session.row.epoch:
        keep(session, row.run_id, "reset")
        return
    if not taken:
        _post(session, get(session.connection, row.run_id), level, terms)
    handed(session.connection, row.run_id)


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


def _call(row: Row[Any]) -> dict[str, Any]:
    """The call that spawned a run."""
    return {
        "key": row.parent_key,
        "of_turn": row.parent_turn,
        "of_step": row.parent_step,
        "of_call": row.parent_call,
    }


def _queued(connection: Connection, parent_key: str) -> list[Run]:
    return [run_of(row) for row in connection.execute(_QUEUED, {"key": parent_key})]
