"""Every line that depends on the database engine. The rest of the store is plain SQLAlchemy.

Invariant: a write transaction holds the database's write lock from its first statement, so
what it reads is what it changes, and event ids rise in commit order.
"""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TextIO

from sqlalchemy import URL, Insert, Table, event, make_url
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from perdure.domain.errors import InvalidArgument

#: How long a writer waits for another process before it gives up, in seconds.
BUSY_TIMEOUT = 30.0
#: How often a tail looks whether another connection has committed, in seconds.
WAKE_INTERVAL = 0.01


def parse_url(url: str) -> URL:
    """The database URL, checked.

    Raises:
        InvalidArgument: for an engine that Perdure does not run on, or a URL without a file.
    """
    parsed = make_url(url)
    if parsed.drivername != "sqlite+aiosqlite" or parsed.database in (None, "", ":memory:"):
        raise InvalidArgument(
            f"The store {parsed.render_as_string(hide_password=True)} is not supported.",
            "Use sqlite+aiosqlite:///PATH; several processes share it, so it must be a file.",
        )
    return parsed


def create_engines(url: URL) -> tuple[AsyncEngine, AsyncEngine]:
    """A reading and a writing engine.

    The writer has one connection: writers queue in process instead of polling the file lock.
    Parameters, which are conversation text, stay out of error messages.
    """
    Path(url.database or "").parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"poolclass": AsyncAdaptedQueuePool, "hide_parameters": True}
    reader = create_async_engine(url, pool_size=4, **options)
    writer = create_async_engine(url, pool_size=1, max_overflow=0, pool_timeout=120, **options)
    for engine, begin in ((reader, "BEGIN"), (writer, "BEGIN IMMEDIATE")):
        _configure(engine, begin)
    return reader, writer


def _configure(engine: AsyncEngine, begin: str) -> None:
    @event.listens_for(engine.sync_engine, "connect")
    def set_pragmas(connection: Any, _record: Any) -> None:
        # The driver would begin transactions by itself, and not before the first write.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT * 1000)}")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = NORMAL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def begin_transaction(connection: Any) -> None:
        connection.exec_driver_sql(begin)


def insert_or_ignore(table: Table) -> Insert:
    """An insert that does nothing where the row's key is taken; `rowcount` tells which."""
    return sqlite.insert(table).on_conflict_do_nothing()


@asynccontextmanager
async def migration_lock(url: URL) -> AsyncIterator[None]:
    """Held by one process at a time; the kernel releases it when the holder dies."""
    lock = await asyncio.to_thread(_locked, Path(f"{url.database}.migrate.lock"))
    try:
        yield
    finally:
        lock.close()


def _locked(path: Path) -> TextIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


class CommitWatch:
    """Tells when any other connection, of this process or another, has committed.

    `PRAGMA data_version` reads shared memory and takes microseconds, so it is asked on the
    event loop itself.
    """

    def __init__(self, url: URL) -> None:
        self._connection = sqlite3.connect(f"file:{url.database}?mode=ro", uri=True)
        self._seen = self._version()

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    async def changed(self) -> None:
        """Return once something was committed since the last call."""
        while (version := self._version()) == self._seen:  # noqa: ASYNC110 (another process)
            await asyncio.sleep(WAKE_INTERVAL)
        self._seen = version

    def close(self) -> None:
        """Release the connection."""
        self._connection.close()
