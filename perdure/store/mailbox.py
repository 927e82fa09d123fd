"""The mailbox: messages laid down by their senders, waiting to be taken into a transcript.

Invariant: a message id names one message of a session for ever, in the mailbox or in the
transcript, never in both.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select

from perdure.domain.envelopes import Envelope, Sender
from perdure.domain.errors import Conflict
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.tables import mailbox, messages


class Posted(StrEnum):
    """What became of a message laid down: new, known and waiting, or taken already."""

    NEW = "new"
    WAITING = "waiting"
    TAKEN = "taken"


class Mailbox:
    """Laying messages down and picking them up again unread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def post(self, session_key: str, envelope: Envelope, text: str) -> Posted:
        """Lay a message down, once.

        Raises:
            Conflict: when the id was used for another text.
        """
        return await self._database.write(_post, session_key, envelope, text)

    async def withdraw(self, session_key: str, message_id: str) -> bool:
        """Pick a message up again; False when it was taken or never laid down."""
        return await self._database.write(discard, session_key, message_id)

    async def count(self, session_key: str) -> int:
        """How many messages wait for a session."""
        return await self._database.read(_count, session_key)


def waiting(connection: Connection, session_key: str) -> tuple[Envelope, ...]:
    """The envelopes of every message that waits for a session, oldest first."""
    rows = connection.execute(
        select(mailbox)
        .where(mailbox.c.session_key == session_key)
        .order_by(mailbox.c.at, mailbox.c.message_id)
    )
    return tuple(
        Envelope(
            message_id=row.message_id,
            sender=Sender(kind=row.sender_kind, id=row.sender_id),
            label=row.label,
        )
        for row in rows
    )


def take(connection: Connection, session_key: str, message_id: str) -> Row[Any] | None:
    """Remove a message from the mailbox and return its row; None when it does not lie there."""
    return connection.execute(
        delete(mailbox).where(*_at(session_key, message_id)).returning(mailbox)
    ).one_or_none()


def discard(connection: Connection, session_key: str, message_id: str) -> bool:
    """Remove a message unread; False when it does not lie there."""
    return take(connection, session_key, message_id) is not None


def _post(connection: Connection, session_key: str, envelope: Envelope, text: str) -> Posted:
    known = connection.scalar(
        select(messages.c.text).where(
            messages.c.session_key == session_key, messages.c.id == envelope.message_id
        )
    )
    posted = Posted.TAKEN
    if known is None:
        posted = Posted.WAITING
        known = connection.scalar(
            select(mailbox.c.text).where(*_at(session_key, envelope.message_id))
        )
    if known is not None:
        if known != text:
            raise Conflict(
                f"The message id {envelope.message_id} was used for another text.",
                "A message id names one message for ever; send this one under a new id.",
            )
        return posted
    connection.execute(
        insert(mailbox).values(
            session_key=session_key,
            message_id=envelope.message_id,
            text=text,
            sender_kind=envelope.sender.kind,
            sender_id=envelope.sender.id,
            label=envelope.label,
            at=now(),
        )
    )
    return Posted.NEW


def _count(connection: Connection, session_key: str) -> int:
    query = select(func.count()).where(mailbox.c.session_key == session_key)
    return int(connection.scalar(query) or 0)


def _at(session_key: str, message_id: str) -> tuple[Any, ...]:
    return (mailbox.c.session_key == session_key, mailbox.c.message_id == message_id)
