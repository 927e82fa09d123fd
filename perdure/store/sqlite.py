"""SQLite: a file that the processes of one machine share.

Invariant: `BEGIN IMMEDIATE` holds the file's write lock from the first statement on. One thread
writes, so writers of a process queue here and not at the file lock.

A transaction runs as a whole on a thread. Measured against aiosqlite, which crosses threads four
times a statement, a turn's writes take a tenth of the time.
"""

from __future__ import annotations

import asyncio
import fcntl
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, String, create_engine, event
from sqlalchemy import Engine as Pool
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import QueuePool

from perdure.domain.errors import Unavailable
from perdure.store import search_fts5
from perdure.store.plain_text import StorableText

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

Result = TypeVar("Result")


class _Text(StorableText, String):
    """Text as it is bound."""


_TYPES = {**SQLiteDialect_pysqlite.colspecs, String: _Text}


class PerdureSQLite(SQLiteDialect_pysqlite):
    """SQLAlchemy's dialect; text is stored as on every engine."""

    supports_statement_cache = True
    colspecs = _TYPES


registry.register("sqlite.perdure", __name__, PerdureSQLite.__name__)


class SQLiteEngine:
    """The connections to a file, and the threads they are used on."""

    def __init__(self, url: URL, readers: int) -> None:
        self._url = url
        self._reader, self._writer = create_engines(url, readers)
        self._reading = ThreadPoolExecutor(readers, "store-read")
        self._writing = ThreadPoolExecutor(1, "store-write")

    async def migrate(self, upgrade: Callable[[Connection], None]) -> None:
        def run() -> None:
            with _migration_lock(self._url), self._writer.connect() as connection:
                upgrade(connection)

        try:
            await asyncio.get_running_loop().run_in_executor(self._writing, run)
        except (DBAPIError, OSError) as error:
            why = error.orig if isinstance(error, DBAPIError) else error
            raise Unavailable(
                f"The store at {self._url.database} cannot be opened: {why}.",
                "Is the disk full or read-only? A damaged file must be restored from a copy.",
            ) from error

    async def read(self, query: Callable[[Connection], Result]) -> Result:
        def run() -> Result:
            with self._reader.connect() as connection:
                return query(connection)

        return await asyncio.get_running_loop().run_in_executor(self._reading, run)

    async def write(
        self, transaction: Callable[[Connection], Result], committed: Callable[[], None]
    ) -> Result:
        def run() -> Result:
            with self._writer.begin() as connection:
                result = transaction(connection)
            committed()
            return result

        return await asyncio.get_running_loop().run_in_executor(self._writing, run)

    def watch(self) -> DataVersion:
        return DataVersion(self._url)

    async def close(self) -> None:
        await asyncio.to_thread(self._writing.shutdown)
        await asyncio.to_thread(self._reading.shutdown)
        self._reader.dispose()
        self._writer.dispose()


def create_engines(url: URL, readers: int) -> tuple[Pool, Pool]:
    """A reading and a writing engine. Parameters are conversation text: errors hide them."""
    Path(url.database or "").parent.mkdir(parents=True, exist_ok=True)
    engines = []
    for size, begin in ((readers, "BEGIN"), (1, "BEGIN IMMEDIATE")):
        engine = create_engine(
            url.set(drivername="sqlite+perdure"),
            poolclass=QueuePool,
            pool_size=size,
            max_overflow=0,
            hide_parameters=True,
        )
        _configure(engine, begin)
        engines.append(engine)
    return engines[0], engines[1]


def _configure(engine: Pool, begin: str) -> None:
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
def _migration_lock(url: URL) -> Iterator[None]:
    """Held by one process at a time; the kernel releases it when the holder dies."""
    with Path(f"{url.database}.migrate.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class DataVersion:
    """A watch on any commit to the file.

    `PRAGMA data_version` reads shared memory and takes microseconds, so it is asked on the
    event loop itself.
    """

    def __init__(self, url: URL) -> None:
        self._connection = sqlite3.connect(f"file:{url.database}?mode=ro", uri=True)
        self._seen = self._version()

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    async def changed(self) -> None:
        looks = 0
        while (version := self._version()) == self._seen:
            await asyncio.sleep(WAKE_INTERVALS[looks >= EAGER_LOOKS])
            looks += 1
        self._seen = version

    def close(self) -> None:
        self._connection.close()
