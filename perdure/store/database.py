"""One database: how it is opened, migrated, read and written.

Invariant: the schema is current before the first statement; every change is one `write`.

A transaction is a plain function from a connection to a value, run as a whole on a thread.
Measured against aiosqlite, which crosses threads four times a statement, a turn's writes take a
tenth of the time. Where the driver itself is asynchronous, the same functions run under
SQLAlchemy's `run_sync`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from alembic import command
from alembic.config import Config
from sqlalchemy import URL, Connection
from sqlalchemy.exc import DBAPIError

from perdure.domain.errors import Unavailable
from perdure.store import dialect

_MIGRATIONS = Path(__file__).parent / "migrations"

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Transaction = Callable[Concatenate[Connection, Parameters], Result]

_AFTER_COMMIT = "perdure_after_commit"


def after_commit(connection: Connection, call: Callable[[], None]) -> None:
    """Have `call` made once the transaction under way is committed, before `write` returns.

    It is made on the writing thread, holds no lock of the database, and must not raise.
    """
    connection.info.setdefault(_AFTER_COMMIT, []).append(call)


class Database:
    """The engines behind a store, and the threads they run on. Open it with `Database.open`.

    One thread writes, so writers of a process queue here and not at the file lock.
    """

    def __init__(self, url: URL) -> None:
        self.url = url
        self._reader, self._writer = dialect.create_engines(url)
        self._reading = ThreadPoolExecutor(dialect.READERS, "store-read")
        self._writing = ThreadPoolExecutor(1, "store-write")

    @classmethod
    async def open(cls, url: str) -> Database:
        """Connect, and bring the schema up to date under a lock shared by all processes.

        Raises:
            InvalidArgument: for a URL that Perdure does not run on.
            Unavailable: when the database is damaged, locked, or cannot be written.
        """
        database = cls(dialect.parse_url(url))
        try:
            await asyncio.get_running_loop().run_in_executor(database._writing, database._migrate)
        except (DBAPIError, OSError) as error:
            await database.close()
            why = error.orig if isinstance(error, DBAPIError) else error
            raise Unavailable(
                f"The store at {database.url.database} cannot be opened: {why}.",
                "Is the disk full or read-only? A damaged file must be restored from a copy.",
            ) from error
        return database

    async def read(
        self,
        query: Transaction[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        """Run a query on a consistent view of the database."""

        def run() -> Result:
            with self._reader.connect() as connection:
                return query(connection, *args, **kwargs)

        return await asyncio.get_running_loop().run_in_executor(self._reading, run)

    async def write(
        self,
        transaction: Transaction[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        """Run a transaction that holds the write lock; it commits unless it raises.

        A caller that is cancelled does not stop it: what was begun is committed.
        """

        def run() -> Result:
            with self._writer.begin() as connection:
                # What a transaction that was rolled back had left behind.
                connection.info.pop(_AFTER_COMMIT, None)
                result = transaction(connection, *args, **kwargs)
                calls = connection.info.pop(_AFTER_COMMIT, ())
            for call in calls:
                call()
            return result

        return await asyncio.get_running_loop().run_in_executor(self._writing, run)

    async def close(self) -> None:
        """Finish what was begun and release every connection."""
        await asyncio.to_thread(self._writing.shutdown)
        await asyncio.to_thread(self._reading.shutdown)
        self._reader.dispose()
        self._writer.dispose()

    def _migrate(self) -> None:
        config = Config()
        config.set_main_option("script_location", str(_MIGRATIONS))
        with dialect.migration_lock(self.url), self._writer.connect() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
