"""The mailbox: messages laid down by their senders, waiting to be taken into a transcript.

Invariant: a message id names one message of a session for ever, in the mailbox or in the
transcript, never in both.
"""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import Row, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from perdure.domain.envelopes import Envelope, Sender
from perdure.domain.errors import Conflict
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.dialect import insert_or_ignore
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
        async with self._database.write() as connection:
            known = await _text_of(connection, messages, messages.c.id, session_key, envelope)
            posted = Posted.TAKEN
            if known is None:
                known = await _text_of(
                    connection, mailbox, mailbox.c.message_id, session_key, envelope
                )
                posted = Posted.WAITING
            if known is not None:
                if known != text:
                    raise Conflict(
                        f"The message id {envelope.message_id} was used for another text.",
                        "A message id names one message for ever; send this one under a new id.",
                    )
                return posted
            await connection.execute(
                insert_or_ignore(mailbox).values(
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

    async def withdraw(self, session_key: str, message_id: str) -> bool:
        """Pick a message up again; False when it was taken or never laid down."""
        async with self._database.write() as connection:
            gone = await connection.execute(delete(mailbox).where(*_at(session_key, message_id)))
        return bool(gone.rowcount)

    async def count(self, session_key: str) -> int:
        """How many messages wait for a session."""
        query = select(func.count()).where(mailbox.c.session_key == session_key)
        async with self._database.read() as connection:
            return int(await connection.scalar(query) or 0)


async def waiting(connection: AsyncConnection, session_key: str) -> tuple[Envelope, ...]:
    """The envelopes of every message that waits for a session, oldest first."""
    rows = await connection.execute(
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


async def take(connection: AsyncConnection, session_key: str, message_id: str) -> Row | None:
    """Remove a message from the mailbox and return its row; None when it does not lie there."""
    row = (
        await connection.execute(select(mailbox).where(*_at(session_key, message_id)))
    ).one_or_none()
    if row is not None:
        await connection.execute(delete(mailbox).where(*_at(session_key, message_id)))
    return row


def _at(session_key: str, message_id: str) -> tuple:
    return (mailbox.c.session_key == session_key, mailbox.c.message_id == message_id)


async def _text_of(connection, table, id_column, session_key: str, envelope: Envelope):
    return await connection.scalar(
        select(table.c.text).where(
            table.c.session_key == session_key, id_column == envelope.message_id
        )
    )
