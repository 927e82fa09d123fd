"""Streamed text, in transit: written while someone listens, dropped when the answer commits.

Invariant: losing every row of these tables loses nothing; the answer is in the transcript.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select

from perdure.domain.messages import Frozen
from perdure.domain.states import TurnState
from perdure.domain.steps import StepRequest
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.tables import deltas, listeners, turns

#: How long a listener counts as alive after it last said so, in seconds.
LEASE = 5.0


class Delta(Frozen):
    """A piece of streamed text. A higher `generation` replaces what lower ones streamed."""

    id: int
    turn: int
    step: int
    generation: int
    text: str


class Deltas:
    """Writing and reading streamed text, and the leases of those who listen."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def listen(self, session_key: str, listener: str) -> None:
        """Take or renew a lease of `LEASE` seconds."""
        await self._database.write(_listen, session_key, listener)

    async def leave(self, session_key: str, listener: str) -> None:
        """Give a lease back."""
        await self._database.write(_leave, session_key, listener)

    async def listened(self, session_key: str) -> bool:
        """Whether anyone listens to a session now."""
        return await self._database.read(_listened, session_key)

    async def write(self, request: StepRequest, generation: int, text: str) -> None:
        """Append a piece of the text that a step is streaming, while its turn runs."""
        key = request.model_dump(include={"session_key", "turn", "step"})
        await self._database.write(_write, {**key, "generation": generation, "text": text})

    async def after(self, session_key: str, cursor: int) -> list[Delta]:
        """The pieces of a session with an id above `cursor`, oldest first."""
        return await self._database.read(_after, session_key, cursor)


def _listen(connection: Connection, session_key: str, listener: str) -> None:
    connection.execute(delete(listeners).where(listeners.c.expires_at < now()))
    _leave(connection, session_key, listener)
    connection.execute(
        insert(listeners).values(
            session_key=session_key,
            listener=listener,
            expires_at=now() + timedelta(seconds=LEASE),
        )
    )


def _leave(connection: Connection, session_key: str, listener: str) -> None:
    connection.execute(
        delete(listeners).where(
            listeners.c.session_key == session_key, listeners.c.listener == listener
        )
    )


def _listened(connection: Connection, session_key: str) -> bool:
    query = select(func.count()).where(
        listeners.c.session_key == session_key, listeners.c.expires_at >= now()
    )
    return bool(connection.scalar(query))


def _write(connection: Connection, values: dict[str, Any]) -> None:
    state = connection.scalar(
        select(turns.c.state).where(
            turns.c.session_key == values["session_key"], turns.c.turn == values["turn"]
        )
    )
    if state == TurnState.RUNNING:
        connection.execute(insert(deltas).values(values))


def _after(connection: Connection, session_key: str, cursor: int) -> list[Delta]:
    query = (
        select(deltas)
        .where(deltas.c.session_key == session_key, deltas.c.id > cursor)
        .order_by(deltas.c.id)
    )
    return [
        Delta.model_validate({name: row._mapping[name] for name in Delta.model_fields})
        for row in connection.execute(query)
    ]
