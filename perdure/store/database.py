"""One database: how it is opened, migrated, read and written.

Invariant: the schema is current before the first statement; every change is one `write()`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import URL, Connection
from sqlalchemy.ext.asyncio import AsyncConnection

from perdure.store import dialect

_MIGRATIONS = Path(__file__).parent / "migrations"


class Database:
    """The pair of engines behind a store. Open it with `Database.open`."""

    def __init__(self, url: URL) -> None:
        self.url = url
        self._reader, self._writer = dialect.create_engines(url)

    @classmethod
    async def open(cls, url: str) -> Database:
        """Connect, and bring the schema up to date under a lock shared by all processes.

        Raises:
            InvalidArgument: for a URL that Perdure does not run on.
        """
        database = cls(dialect.parse_url(url))
        async with dialect.migration_lock(database.url), database._writer.connect() as connection:
            await connection.run_sync(_migrate)
        return database

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A consistent view of the database."""
        async with self._reader.connect() as connection:
            yield connection

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that holds the write lock; commits unless the block raises."""
        async with self._writer.begin() as connection:
            yield connection

    async def close(self) -> None:
        """Release every connection."""
        await self._reader.dispose()
        await self._writer.dispose()


def _migrate(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
