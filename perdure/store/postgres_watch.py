"""Hearing of events as PostgreSQL commits them: LISTEN, on a connection of its own.

Invariant: nothing is missed. Every transaction that writes events notifies, by a trigger; and
whoever connects, the first time or again, is told to look once.
"""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg

from perdure.domain.errors import Unavailable

#: As the trigger of the first migration says it.
CHANNEL = "perdure_events"
#: After this many seconds without a word the connection is tried: a line that was cut somewhere
#: does not say so.
QUIET = 15.0
#: How long the server has for an answer, in seconds.
_PATIENCE = 5.0
#: Before a connection is tried anew, in seconds; then it is given up.
_PAUSES = (0.0, 0.1, 0.5, 2.0, 5.0, 10.0)


class Notices:
    """A watch on events. It has a connection from the first `changed` to `close`."""

    def __init__(self, dsn: str, place: str) -> None:
        self._dsn = dsn
        self._place = place
        self._connection: asyncpg.Connection[Any] | None = None
        self._heard = asyncio.Event()

    async def changed(self) -> None:
        while True:
            if self._connection is None or self._connection.is_closed():
                await self._listen()
                return
            try:
                await asyncio.wait_for(self._heard.wait(), QUIET)
            except TimeoutError:
                await self._try()
                continue
            self._heard.clear()
            if not self._connection.is_closed():
                return

    def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()

    async def _listen(self) -> None:
        error: Exception | None = None
        for pause in _PAUSES:
            await asyncio.sleep(pause)
            try:
                self._connection = await asyncpg.connect(
                    self._dsn,
                    timeout=_PATIENCE,
                    server_settings={"application_name": "perdure listening"},
                )
                self._connection.add_termination_listener(self._hear)
                await self._connection.add_listener(CHANNEL, self._hear)
                self._heard.clear()
                return
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as failed:
                error = failed
        raise Unavailable(
            f"The store at {self._place} cannot be listened to: {error}.",
            "Does the server run, and does it take more connections?",
        ) from error

    async def _try(self) -> None:
        """Find out whether the server is still there; if not, the connection is closed."""
        assert self._connection is not None
        try:
            await self._connection.execute("SELECT 1", timeout=_PATIENCE)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self._connection.terminate()

    def _hear(self, *_notice: object) -> None:
        self._heard.set()
