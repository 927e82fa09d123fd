"""Streamed text, in transit: written while someone listens, dropped when the answer commits.

Invariant: losing every row of these tables loses nothing; the answer is in the transcript.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import delete, func, insert, select

from perdure.domain.messages import Frozen
from perdure.domain.steps import StepRequest
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.dialect import insert_or_ignore
from perdure.store.tables import deltas, listeners

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
        expires = now() + timedelta(seconds=LEASE)
        async with self._database.write() as connection:
            await connection.execute(
                delete(listeners).where(
                    (listeners.c.expires_at < now())
                    | (
                        (listeners.c.session_key == session_key)
                        & (listeners.c.listener == listener)
                    )
                )
            )
            await connection.execute(
                insert_or_ignore(listeners).values(
                    session_key=session_key, listener=listener, expires_at=expires
                )
            )

    async def leave(self, session_key: str, listener: str) -> None:
        """Give a lease back."""
        async with self._database.write() as connection:
            await connection.execute(
                delete(listeners).where(
                    listeners.c.session_key == session_key, listeners.c.listener == listener
                )
            )

    async def listened(self, session_key: str) -> bool:
        """Whether anyone listens to a session now."""
        query = select(func.count()).where(
            listeners.c.session_key == session_key, listeners.c.expires_at >= now()
        )
        async with self._database.read() as connection:
            return bool(await connection.scalar(query))

    async def write(self, request: StepRequest, generation: int, text: str) -> None:
        """Append a piece of the text that a step is streaming."""
        async with self._database.write() as connection:
            await connection.execute(
                insert(deltas).values(
                    session_key=request.session_key,
                    turn=request.turn,
                    step=request.step,
                    generation=generation,
                    text=text,
                )
            )

    async def after(self, session_key: str, cursor: int) -> list[Delta]:
        """The pieces of a session with an id above `cursor`, oldest first."""
        query = (
            select(deltas)
            .where(deltas.c.session_key == session_key, deltas.c.id > cursor)
            .order_by(deltas.c.id)
        )
        async with self._database.read() as connection:
            return [
                Delta.model_validate({name: row._mapping[name] for name in Delta.model_fields})
                for row in await connection.execute(query)
            ]
