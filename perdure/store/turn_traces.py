"""What a trace tells of a turn that has ended, and which other turn caused it.

Invariant: reading only, and only where there are traces.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, bindparam, select

from perdure.domain.errors import Code
from perdure.domain.messages import Frozen, Role
from perdure.domain.states import TurnState
from perdure.store.database import Database
from perdure.store.delegation_tables import runs
from perdure.store.tables import messages, sessions, turns

_TURN = (
    select(turns, sessions.c.agent, messages.c.from_session)
    .join(sessions, sessions.c.session_key == turns.c.session_key)
    .outerjoin(
        messages,
        (messages.c.session_key == turns.c.session_key)
        & (messages.c.id == turns.c.message_id)
        & (messages.c.role == Role.USER),
    )
    .where(turns.c.session_key == bindparam("key"), turns.c.turn == bindparam("of_turn"))
)
_SPAWNED_BY = select(runs.c.parent_key, runs.c.parent_turn).where(
    runs.c.session_key == bindparam("key")
)
_NEWEST_TURN = (
    select(sessions.c.turn)
    .join(runs, runs.c.session_key == sessions.c.session_key)
    .where(sessions.c.session_key == bindparam("sender"), runs.c.parent_key == bindparam("key"))
)


#: The turn of a run that is its task.
_TASK = 1


class TurnTrace(Frozen):
    """A turn that has ended. `caused_by` is the session and the turn that it answers, where the
    store knows: the parent's of a run's task, the run's of its result."""

    session_key: str
    turn: int
    agent: str
    state: TurnState
    error: Code | None
    started_at: datetime
    finished_at: datetime
    caused_by: tuple[str, int] | None = None


class TurnTraces:
    """Reads them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, session_key: str, turn: int) -> TurnTrace | None:
        """A turn; None until it has ended, or when there is none."""
        return await self._database.read(_of, session_key, turn)


def _of(connection: Connection, session_key: str, turn: int) -> TurnTrace | None:
    row = connection.execute(_TURN, {"key": session_key, "of_turn": turn}).one_or_none()
    if row is None or row.finished_at is None:
        return None
    return TurnTrace(
        session_key=session_key,
        turn=turn,
        agent=row.agent,
        state=row.state,
        error=None if row.error is None else Code(row.error["code"]),
        started_at=row.started_at,
        finished_at=row.finished_at,
        caused_by=_cause(connection, session_key, turn, row.from_session),
    )


def _cause(
    connection: Connection, session_key: str, turn: int, sender: str | None
) -> tuple[str, int] | None:
    if turn == _TASK:
        spawned = connection.execute(_SPAWNED_BY, {"key": session_key}).one_or_none()
        return None if spawned is None else (spawned.parent_key, spawned.parent_turn)
    if sender is None:
        return None
    newest = connection.scalar(_NEWEST_TURN, {"key": session_key, "sender": sender})
    return None if newest is None else (sender, newest)
