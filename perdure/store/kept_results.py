"""Results that are kept: in the row of their run, for people to read, and not handed over.

Invariant: that a result is kept is told once, and it is not handed over after that.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, select, update

from perdure.domain.runs import RunState
from perdure.domain.states import EventKind
from perdure.domain.steps import ToolRequest
from perdure.store import mailbox
from perdure.store.clock import now
from perdure.store.delegation_tables import runs
from perdure.store.session_writer import SessionWriter
from perdure.store.tables import mailbox as mailbox_table

#: How the ids of messages begin that hand over results.
RESULT = "result_"

# Statements are built once: building them anew costs more than running them.
_CALL = ("session_key", "turn", "step", "call")
_TAKEN = (
    update(runs)
    .where(
        runs.c.parent_key == bindparam("of_session_key"),
        runs.c.parent_turn == bindparam("of_turn"),
        runs.c.parent_step == bindparam("of_step"),
        runs.c.parent_call == bindparam("of_call"),
        runs.c.sync,
        runs.c.state == RunState.ENDED,
        runs.c.handed_at.is_(None),
    )
    .values(handed_at=bindparam("at"))
)


def keep(session: SessionWriter, run_id: str, reason: str) -> None:
    """Tell that the result of a run is kept and not handed over, for good."""
    session.tell(EventKind.RUN_KEPT, run_id=run_id, reason=reason)
    handed(session.connection, run_id)


def handed(connection: Connection, run_id: str) -> None:
    """Record that nothing more is to be done with a run's result."""
    connection.execute(update(runs).where(runs.c.run_id == run_id).values(handed_at=now()))


def taken_by(connection: Connection, request: ToolRequest) -> None:
    """Record that the call that waited for a run has its result, of whatever kind it is."""
    place = {f"of_{name}": getattr(request, name) for name in _CALL}
    connection.execute(_TAKEN, {**place, "at": now()})


def keep_what_waits(session: SessionWriter, reason: str) -> None:
    """Take out of the mailbox of this session what was to join a turn that it does not come to:
    results are kept, and anything else is dropped."""
    waiting = select(mailbox_table.c.message_id).where(
        mailbox_table.c.session_key == session.key, mailbox_table.c.joins
    )
    for message_id in session.connection.scalars(waiting).all():
        mailbox.discard(session.connection, session.key, message_id)
        if message_id.startswith(RESULT):
            keep(session, message_id.removeprefix(RESULT), reason)
        else:
            session.tell(EventKind.MESSAGE_DROPPED, message_id=message_id, reason=reason)
