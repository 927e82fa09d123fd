"""What sweeps came to: chunks that nothing could be gained from, and what was spent.

Invariant: what a model was paid for a summary is counted in its session's totals and in its day,
in the transaction of what it was paid for, or in one of its own when nothing came of it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import Field
from sqlalchemy import Connection, Row, bindparam, insert, select, update

from perdure.domain.messages import Frozen, Usage
from perdure.store.clock import now
from perdure.store.context_tables import sweeps
from perdure.store.database import Database
from perdure.store.session_writer import SessionWriter

#: Chunks remembered as exhausted; the oldest are forgotten first. A context holds far fewer.
REMEMBERED = 500

_READ = select(sweeps).where(sweeps.c.session_key == bindparam("key"))
_WRITE = (
    update(sweeps)
    .where(sweeps.c.session_key == bindparam("key"))
    .values(
        ended=bindparam("new_ended"),
        swept_at=bindparam("new_swept_at"),
        exhausted=bindparam("new_exhausted"),
        day=bindparam("new_day"),
        day_tokens=bindparam("new_day_tokens"),
        day_cost=bindparam("new_day_cost"),
    )
)

_FRESH: dict[str, Any] = {
    "ended": None,
    "swept_at": None,
    "exhausted": {},
    "day_tokens": 0,
    "day_cost": None,
}


class SweepState(Frozen):
    """What earlier sweeps of a session left: how the last one ended, what was tried on each chunk
    from which nothing could be gained, and what this day's summaries took of models."""

    ended: str | None = None
    swept_at: datetime | None = None
    exhausted: dict[str, str] = Field(default_factory=dict)
    day_tokens: int = 0
    day_cost: float = 0.0


class Sweeps:
    """The sweeps table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def state(self, session_key: str) -> SweepState:
        """What is known of a session's earlier sweeps."""
        return await self._database.read(state_of, session_key)

    async def exhaust(self, session_key: str, chunk: str, tried: str, usage: Usage) -> None:
        """Remember that `tried` gained nothing from a chunk, and count what it took."""
        await self._database.write(_exhaust, session_key, chunk, tried, usage)

    async def spend(self, session_key: str, usage: Usage) -> None:
        """Count what a model call took that led to nothing that is kept."""
        await self._database.write(_spend, session_key, usage)

    async def end(self, session_key: str, ended: str) -> None:
        """Note how a sweep ended."""
        await self._database.write(_end, session_key, ended)


def state_of(connection: Connection, session_key: str) -> SweepState:
    """What is known of a session's earlier sweeps."""
    row = connection.execute(_READ, {"key": session_key}).one_or_none()
    if row is None:
        return SweepState()
    same_day = row.day == _today()
    return SweepState(
        ended=row.ended,
        swept_at=row.swept_at,
        exhausted=row.exhausted,
        day_tokens=row.day_tokens if same_day else 0,
        day_cost=(row.day_cost or 0.0) if same_day else 0.0,
    )


def spend(session: SessionWriter, usage: Usage) -> None:
    """Count what a session's summaries took of models."""
    if usage == Usage():
        return
    known = Usage(
        input_tokens=session.row.input_tokens,
        output_tokens=session.row.output_tokens,
        cost=session.row.cost,
    )
    session.change(**(known + usage).model_dump())
    state = state_of(session.connection, session.key)
    cost = state.day_cost + (usage.cost or 0.0)
    tokens = state.day_tokens + usage.input_tokens + usage.output_tokens
    _change(session.connection, session.key, day_tokens=tokens, day_cost=cost)


def _exhaust(
    connection: Connection, session_key: str, chunk: str, tried: str, usage: Usage
) -> None:
    _spend(connection, session_key, usage)
    known = state_of(connection, session_key).exhausted
    kept = [one for one in known.items() if one[0] != chunk][1 - REMEMBERED :]
    _change(connection, session_key, exhausted={**dict(kept), chunk: tried})


def _spend(connection: Connection, session_key: str, usage: Usage) -> None:
    if usage != Usage():
        with SessionWriter(connection, session_key) as session:
            spend(session, usage)


def _end(connection: Connection, session_key: str, ended: str) -> None:
    _change(connection, session_key, ended=ended, swept_at=now())


def _change(connection: Connection, session_key: str, **columns: Any) -> None:
    row: Row[Any] | None = connection.execute(_READ, {"key": session_key}).one_or_none()
    known = dict(_FRESH) if row is None else dict(row._mapping)
    new = known | columns | {"session_key": session_key, "day": _today()}
    if row is None:
        connection.execute(insert(sweeps).values(new))
    else:
        values = {f"new_{name}": new[name] for name in (*_FRESH, "day")}
        connection.execute(_WRITE, {"key": session_key, **values})


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
