"""PostgreSQL: a server that the processes of many machines share.

Invariant: a write transaction takes the store's advisory lock before anything else and gives it
back with its commit. Each statement after that sees all that was committed before, so it is as
`BEGIN IMMEDIATE` on SQLite: one writes at a time, however many processes there are. What may have
been committed is never run again.

The driver is asynchronous. Its connections live on event loops in threads of their own, where
transactions run as plain functions under SQLAlchemy's `run_sync`: what they compute does not stall
the caller's loop, and several loops may share a store. Those that read have another thread than the
one that writes: a long search must not hold up who holds the lock. As on SQLite one connection
writes, so the writers of a process queue here.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import asyncpg
from sqlalchemy import URL, Connection, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from perdure.domain.errors import Unavailable
from perdure.store import postgres_dialect, search_tsvector  # noqa: F401 (dialect: it registers)
from perdure.store.postgres_watch import Notices

#: How long a writer waits for others before it gives up, in seconds.
BUSY_TIMEOUT = 30.0
#: A process that stands still in a transaction, as one that is frozen does, loses it after this
#: many seconds: it may hold the lock that all the others wait for.
IDLE_TIMEOUT = 30.0
#: How long a connection is tried for, in seconds.
CONNECT_TIMEOUT = 10.0
#: Statements that a connection keeps prepared; the store has about so many.
PREPARED = 400
#: Before a transaction that failed with the connection is run again, in seconds. A server that is
#: started anew takes some.
PAUSES = (0.05, 0.2, 1.0, 3.0)

#: The advisory locks, by number: "perdure" and what for. They are the database's own.
_WRITING, _MIGRATING = 0x70657264_00000001, 0x70657264_00000002
_LOCK = f"SELECT pg_advisory_xact_lock({_WRITING})"
_MIGRATION_LOCK = f"SELECT pg_advisory_xact_lock({_MIGRATING})"

#: The transaction was undone for the sake of another, or the server does not take any just now.
_PASSING = ("40001", "40P01", "53300", "57P01", "57P02", "57P03", "25P03")
#: It waited for the lock of another for too long.
_BUSY = "55P03"

_logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class PostgresEngine:
    """The connections to a database, and the thread they live on."""

    def __init__(self, url: URL, readers: int, place: str) -> None:
        self._dsn = url.render_as_string(hide_password=False)
        self._place = place
        self._writer = self._engine(1)
        # Kept as triggers keep it on SQLite: whatever writes a message through us.
        event.listen(self._writer.sync_engine, "after_execute", search_tsvector.keep)
        self._reader = self._engine(readers).execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )
        self._reading = _Lane("store-read", readers)
        self._writing = _Lane("store-write", 1)

    async def migrate(self, upgrade: Callable[[Connection], None]) -> None:
        async def run() -> None:
            async with self._writer.begin() as connection:
                await connection.exec_driver_sql(_MIGRATION_LOCK)
                await connection.run_sync(upgrade)

        try:
            await self._writing.run(run())
        except (DBAPIError, OSError, TimeoutError, ValueError, asyncpg.InterfaceError) as error:
            raise Unavailable(
                f"The store at {self._place} cannot be opened: {_told(error)}.",
                "Does the server run, does the database exist, and may this user log in and make "
                "tables in it?",
            ) from error

    async def read(self, query: Callable[[Connection], Result]) -> Result:
        async def run() -> Result:
            async with self._reader.connect() as connection:
                return await connection.run_sync(query)

        return await self._reading.in_turn(lambda: self._repeated(run))

    async def write(
        self, transaction: Callable[[Connection], Result], committed: Callable[[], None]
    ) -> Result:
        async def run() -> Result:
            async with self._writer.connect() as connection:
                await connection.exec_driver_sql(_LOCK)
                result = await connection.run_sync(transaction)
                try:
                    await connection.commit()
                except (DBAPIError, OSError) as error:
                    if not _is_cut_off(error):
                        raise
                    raise Unavailable(
                        f"The connection to {self._place} was lost while a change was committed, "
                        "which has perhaps taken place.",
                        "Look whether it has, or do the same again: nothing is done twice.",
                    ) from error
            committed()
            return result

        return await self._writing.in_turn(lambda: self._repeated(run))

    def watch(self) -> Notices:
        return Notices(self._dsn, self._place)

    async def close(self) -> None:
        await self._writing.close(self._writer.dispose)
        await self._reading.close(self._reader.dispose)

    def _engine(self, size: int) -> AsyncEngine:
        engine = create_async_engine(
            "postgresql+perdure://",
            connect_args={
                "async_creator_fn": self._connect,
                "prepared_statement_cache_size": PREPARED,
            },
            pool_size=size,
            max_overflow=0,
            # Parameters are conversation text: errors hide them.
            hide_parameters=True,
        )
        event.listen(engine.sync_engine, "handle_error", _withhold)
        return engine

    async def _connect(self) -> asyncpg.Connection[Any]:
        return await asyncpg.connect(
            self._dsn,
            timeout=CONNECT_TIMEOUT,
            server_settings={
                "application_name": "perdure",
                # Statements are short: to compile them takes longer than they do. Searches differ
                # too much from each other for one plan.
                "jit": "off",
                "plan_cache_mode": "force_custom_plan",
                "lock_timeout": str(int(BUSY_TIMEOUT * 1000)),
                "idle_in_transaction_session_timeout": str(int(IDLE_TIMEOUT * 1000)),
            },
        )

    async def _repeated(self, run: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Run a transaction, again where it is certain that it came to nothing through no fault
        of its own."""
        for pause in (*PAUSES, None):
            try:
                return await run()
            except (DBAPIError, OSError, NoConnection) as error:
                if not _passes(error):
                    raise
                if pause is None or _state(error) == _BUSY:
                    raise Unavailable(
                        f"The store at {self._place} does not answer: {_told(error)}.",
                        "Does the server run, and does it take more connections?",
                    ) from error
                _logger.info("the store failed and is asked again: %s", _told(error))
                await asyncio.sleep(pause)
        raise AssertionError("the last try returns or raises")


class _Lane:
    """An event loop in a thread of its own, on which so many transactions run at a time."""

    def __init__(self, name: str, places: int) -> None:
        self._places = asyncio.Semaphore(places)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    async def in_turn(self, begin: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """What a transaction comes to that waits for a place. If nobody waits for it any more when
        its turn comes, it does not begin."""
        is_wanted = True

        async def work() -> Result:
            async with self._places:
                if not is_wanted:
                    raise asyncio.CancelledError
                return await begin()

        try:
            return await self.run(work())
        except asyncio.CancelledError:
            is_wanted = False
            raise

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What `work` comes to on the thread. A caller that is cancelled does not stop it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        return await asyncio.shield(asyncio.wrap_future(future))

    async def close(self, release: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Finish what was begun, release what is held, and end the thread."""
        if self._loop.is_closed():
            return

        async def finish() -> None:
            begun = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.gather(*begun, return_exceptions=True)
            await release()

        await self.run(finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()


def _withhold(context: ExceptionContext) -> None:
    """Take out of an error what the server tells of the row that it is about: it is text."""
    failed = context.original_exception.__cause__
    if isinstance(failed, asyncpg.PostgresError):
        failed.detail = None


def _passes(error: Exception) -> bool:
    """Whether the same may succeed later."""
    if isinstance(error, DBAPIError):
        state = _state(error) or ""
        return error.connection_invalidated or state in _PASSING or state == _BUSY
    return True


def _is_cut_off(error: Exception) -> bool:
    """Whether the server may have done what it was asked last, and could not say so."""
    if not isinstance(error, DBAPIError) or error.connection_invalidated:
        return True
    return (_state(error) or "57")[:2] in ("08", "57")


def _state(error: Exception) -> str | None:
    return getattr(error.orig, "sqlstate", None) if isinstance(error, DBAPIError) else None


def _told(error: Exception) -> str:
    """What the server or the system says, in one line. The further ones may hold values."""
    if isinstance(error, DBAPIError):
        cause = error.orig.__cause__ if error.orig is not None else None
        error = cause if isinstance(cause, Exception) else error
    said = str(error).partition("\n")[0].rstrip(".")
    return said or type(error).__name__
