"""Every line that depends on the database engine. The rest of the store is plain SQLAlchemy.

Invariant: a write transaction holds the database's write lock from its first statement, so
what it reads is what it changes, and event ids rise in commit order.
"""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import QueuePool

from perdure.domain.errors import InvalidArgument
from perdure.store import search_fts5

#: Threads that read, each with a connection.
READERS = 4
#: How long a writer waits for another process before it gives up, in seconds.
BUSY_TIMEOUT = 30.0
#: Pages that a connection keeps at most, in KiB. SQLite's own 2,000 are less than one search of a
#: large database reads; it takes a quarter longer with them.
CACHE_KIB = 8_000
#: How often a tail looks whether another connection has committed, in seconds: at first, when an
#: answer is likely soon, and after a while. A look takes microseconds.
WAKE_INTERVALS = (0.002, 0.01)
#: How many looks are made at the first interval.
EAGER_LOOKS = 100


def parse_url(url: str) -> URL:
    """The database URL, checked.

    Raises:
        InvalidArgument: for an engine that Perdure does not run on, or a URL without a file.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise InvalidArgument("The store's URL cannot be parsed.", f"{error}") from error
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        raise InvalidArgument(
            f"The store {parsed.render_as_string(hide_password=True)} is not supported.",
            "Use sqlite:///PATH; several processes share it, so it must be a file.",
        )
    return parsed.set(drivername="sqlite+pysqlite")


def create_engines(url: URL) -> tuple[Engine, Engine]:
    """A reading and a writing engine. Parameters are conversation text: errors hide them."""
    Path(url.database or "").parent.mkdir(parents=True, exist_ok=True)
    engines = []
    for size, begin in ((READERS, "BEGIN"), (1, "BEGIN IMMEDIATE")):
        engine = create_engine(
            url, poolclass=QueuePool, pool_size=size, max_overflow=0, hide_parameters=True
        )
        _configure(engine, begin)
        engines.append(engine)
    return engines[0], engines[1]


def _configure(engine: Engine, begin: str) -> None:
    @event.listens_for(engine, "connect")
    def set_pragmas(connection: Any, _record: Any) -> None:
        # The driver would begin transactions by itself, and not before the first write.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT * 1000)}")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = NORMAL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.execute(f"PRAGMA cache_size = {-CACHE_KIB}")
        cursor.close()
        search_fts5.register(connection)

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Any) -> None:
        connection.exec_driver_sql(begin)


@contextmanager
def migration_lock(url: URL) -> Iterator[None]:
    """Held by one process at a time; the kernel releases it when the holder dies."""
    with Path(f"{url.database}.migrate.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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
        looks = 0
        while (version := self._version()) == self._seen:
            await asyncio.sleep(WAKE_INTERVALS[looks >= EAGER_LOOKS])
            looks += 1
        self._seen = version

    def close(self) -> None:
        """Release the connection."""
        self._connection.close()
