"""What a database engine does for the store: run transactions, and tell of commits.

Invariant: a write transaction is alone from its first statement on, whoever else writes and from
whichever process: what it reads is what it changes, and event ids rise in commit order. A read
sees one moment of the database.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from sqlalchemy import Connection

Result = TypeVar("Result")


class CommitWatch(Protocol):
    """Tells when any other connection, of this process or another, has committed events."""

    async def changed(self) -> None:
        """Return once something was committed since the last call; sometimes for nothing.

        Raises:
            Unavailable: when the database cannot be reached.
        """

    def close(self) -> None:
        """Release the connection."""


class Engine(Protocol):
    """An open database. It is used from any number of event loops and threads."""

    async def migrate(self, upgrade: Callable[[Connection], None]) -> None:
        """Bring the schema up to date under a lock shared by all processes.

        Raises:
            Unavailable: when the database cannot be opened, is damaged or cannot be written.
        """

    async def read(self, query: Callable[[Connection], Result]) -> Result:
        """Run a query on a consistent view of the database."""

    async def write(
        self, transaction: Callable[[Connection], Result], committed: Callable[[], None]
    ) -> Result:
        """Run a transaction that holds the write lock, and call `committed` once it is committed,
        before the next one of this process begins.

        It commits unless it raises. A caller that is cancelled does not stop it. `transaction` may
        be run again when it is certain that nothing was committed; only the last result counts.
        """

    def watch(self) -> CommitWatch:
        """A watch that is used on the event loop of the caller."""

    async def close(self) -> None:
        """Finish what was begun and release every connection."""
