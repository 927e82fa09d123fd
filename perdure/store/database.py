"""One database: how it is opened, migrated, read and written.

Invariant: the schema is current before the first statement; every change is one `write`.

A transaction is a plain function from a connection to a value, whatever the engine: see `engine`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import URL, Connection

from perdure.store import dialect
from perdure.store.engine import CommitWatch
from perdure.store.schema import bring_up_to_date

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Transaction = Callable[Concatenate[Connection, Parameters], Result]

_AFTER_COMMIT = "perdure_after_commit"


def after_commit(connection: Connection, call: Callable[[], None]) -> None:
    """Have `call` made once the transaction under way is committed, before `write` returns.

    It is made on the writing thread, holds no lock of the database, and must not raise.
    """
    connection.info[_AFTER_COMMIT].append(call)


class Database:
    """The engine behind a store. Open it with `Database.open`."""

    def __init__(self, url: URL, readers: int = dialect.READERS) -> None:
        self.url = url
        self._engine = dialect.engine_of(url, readers)

    @classmethod
    async def open(cls, url: str, *, readers: int = dialect.READERS) -> Database:
        """Connect, and bring the schema up to date under a lock shared by all processes.

        Args:
            url: as `dialect.parse_url` takes it.
            readers: transactions that read at the same time, each with a connection; one more
                connection writes.

        Raises:
            InvalidArgument: for a URL that Perdure does not run on.
            Unavailable: when the database is damaged, locked, or cannot be reached or written.
        """
        database = cls(dialect.parse_url(url), readers)
        try:
            await database._engine.migrate(bring_up_to_date)
        except BaseException:
            # Also when the opening is cancelled: nobody else holds its threads and connections.
            await database.close()
            raise
        return database

    async def read(
        self,
        query: Transaction[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        """Run a query on a consistent view of the database."""
        return await self._engine.read(lambda connection: query(connection, *args, **kwargs))

    async def write(
        self,
        transaction: Transaction[Parameters, Result],
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> Result:
        """Run a transaction that holds the write lock; it commits unless it raises.

        A caller that is cancelled does not stop it: what was begun is committed.
        """
        calls: list[Callable[[], None]] = []

        def run(connection: Connection) -> Result:
            calls.clear()
            connection.info[_AFTER_COMMIT] = calls
            return transaction(connection, *args, **kwargs)

        return await self._engine.write(run, partial(_make, calls))

    def watch(self) -> CommitWatch:
        """A watch on commits, for the event loop of the caller."""
        return self._engine.watch()

    async def close(self) -> None:
        """Finish what was begun and release every connection."""
        await self._engine.close()


def _make(calls: list[Callable[[], None]]) -> None:
    for call in calls:
        call()
