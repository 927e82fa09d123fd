"""Requests that come again without a name of their own.

Invariant: a message or session whose id begins with the digest of a request is found again by that
digest for as long as its client may still repeat it; two requests that merely say the same have
ids of their own.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Column, Connection, Table, select
from ulid import ULID

from perdure.store.database import Database
from perdure.store.tables import mailbox, messages, sessions


class Repeats:
    """Finds what an earlier try of a request has made."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def message(self, session_key: str, prefix: str, since: datetime) -> str | None:
        """The newest message of a session whose id is `prefix` and a ULID made since then."""
        return await self._database.read(_message, session_key, prefix, since)

    async def session(self, prefix: str, since: datetime) -> str | None:
        """The newest session whose key is `prefix` and a ULID made since then."""
        return await self._database.read(_session, prefix, since)


def _message(connection: Connection, session_key: str, prefix: str, since: datetime) -> str | None:
    found = [
        _newest(connection, table, column, prefix, since, session_key)
        for table, column in ((mailbox, mailbox.c.message_id), (messages, messages.c.id))
    ]
    return max((one for one in found if one is not None), default=None)


def _session(connection: Connection, prefix: str, since: datetime) -> str | None:
    found = [
        _newest(connection, table, table.c.session_key, prefix, since)
        for table in (mailbox, sessions)
    ]
    return max((one for one in found if one is not None), default=None)


def _newest(
    connection: Connection,
    table: Table,
    column: Column[str],
    prefix: str,
    since: datetime,
    session_key: str | None = None,
) -> str | None:
    query = (
        select(column)
        # A range of the primary key. A ULID begins with the time it was made.
        .where(column >= f"{prefix}{ULID.from_datetime(since)}", column < f"{prefix}~")
        .order_by(column.desc())
        .limit(1)
    )
    if session_key is not None:
        query = query.where(table.c.session_key == session_key)
    return connection.scalar(query)
