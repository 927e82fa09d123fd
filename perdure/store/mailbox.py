"""The mailbox: messages laid down by their senders, waiting to be taken into a transcript.

Invariant: a message id names one message of a session for ever, in the mailbox or in the
transcript, never in both.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, func, insert, select

from perdure.domain.envelopes import WAITING_BYTES, Envelope, Sender
from perdure.domain.errors import Conflict
from perdure.domain.messages import Frozen
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.outbox import newest_event
from perdure.store.plain_text import storable
from perdure.store.tables import mailbox, messages

# Statements are built once: building them anew costs more than running them.
_TAKEN = select(messages.c.text).where(
    messages.c.session_key == bindparam("key"), messages.c.id == bindparam("id")
)
_LIES_THERE = (mailbox.c.session_key == bindparam("key"), mailbox.c.message_id == bindparam("id"))
_WAITING = select(mailbox.c.text).where(*_LIES_THERE)
_TAKE = delete(mailbox).where(*_LIES_THERE).returning(mailbox)
_ADD = insert(mailbox)


class Place(StrEnum):
    """Where a message laid down lies: newly in the mailbox, there before, or in the transcript."""

    NEW = "new"
    WAITING = "waiting"
    TAKEN = "taken"


class Posted(Frozen):
    """What became of a message laid down. Events of its turn, if it is new, come after `cursor`,
    the outbox as it stood then."""

    place: Place
    cursor: int


class Mailbox:
    """Laying messages down and picking them up again unread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def post(self, session_key: str, envelope: Envelope, text: str) -> Posted:
        """Lay a message down, once.

        Raises:
            Conflict: when the id was used for another text.
        """
        return await self._database.write(post, session_key, envelope, text)

    async def withdraw(self, session_key: str, message_id: str) -> bool:
        """Pick a message up again; False when it was taken or never laid down."""
        return await self._database.write(discard, session_key, message_id)

    async def holds(self, session_key: str, message_id: str) -> bool:
        """Whether a message lies here, not yet taken."""
        return await self._database.read(holds, session_key, message_id)

    async def count(self, session_key: str) -> int:
        """How many messages wait for a session."""
        return await self._database.read(_count, session_key)


def waiting(connection: Connection, session_key: str) -> tuple[Envelope, ...]:
    """The envelopes of the messages that wait for a session, oldest first, as many as a
    workflow's state has room for."""
    rows = connection.execute(
        # Without the texts: thousands may wait, of a megabyte each.
        select(*(column for column in mailbox.c if column is not mailbox.c.text))
        .where(mailbox.c.session_key == session_key)
        .order_by(mailbox.c.at, mailbox.c.message_id)
    )
    envelopes: list[Envelope] = []
    room = WAITING_BYTES
    for row in rows:
        envelope = envelope_of(row)
        room -= envelope.size
        if room < 0:
            break
        envelopes.append(envelope)
    return tuple(envelopes)


def envelope_of(row: Row[Any]) -> Envelope:
    """The envelope of a message that lies here."""
    return Envelope(
        message_id=row.message_id,
        sender=Sender(kind=row.sender_kind, id=row.sender_id),
        label=row.label,
        joins=row.joins,
        cleared=row.cleared,
        exchange=row.exchange,
        replies=row.replies,
    )


def holds(connection: Connection, session_key: str, message_id: str) -> bool:
    """Whether a message lies in the mailbox."""
    return connection.scalar(_WAITING, {"key": session_key, "id": message_id}) is not None


def knows(connection: Connection, session_key: str, message_id: str) -> bool:
    """Whether a message lies in the mailbox, or was taken from it into the transcript."""
    message = {"key": session_key, "id": message_id}
    return any(connection.scalar(query, message) is not None for query in (_WAITING, _TAKEN))


def take(connection: Connection, session_key: str, message_id: str) -> Row[Any] | None:
    """Remove a message from the mailbox and return its row; None when it does not lie there."""
    return connection.execute(_TAKE, {"key": session_key, "id": message_id}).one_or_none()


def discard(connection: Connection, session_key: str, message_id: str) -> bool:
    """Remove a message unread; False when it does not lie there."""
    return take(connection, session_key, message_id) is not None


def post(connection: Connection, session_key: str, envelope: Envelope, text: str) -> Posted:
    """Lay a message down, once; see `Mailbox.post`."""
    message = {"key": session_key, "id": envelope.message_id}
    place = Place.TAKEN
    known = connection.scalar(_TAKEN, message)
    if known is None:
        place = Place.WAITING
        known = connection.scalar(_WAITING, message)
    if known is None:
        place = Place.NEW
        connection.execute(
            _ADD,
            {
                "session_key": session_key,
                "message_id": envelope.message_id,
                "text": text,
                "sender_kind": envelope.sender.kind,
                "sender_id": envelope.sender.id,
                "label": envelope.label,
                "joins": envelope.joins,
                "cleared": envelope.cleared,
                "exchange": envelope.exchange,
                "replies": envelope.replies,
                "at": now(),
            },
        )
    elif known != storable(text):
        raise Conflict(
            f"The message id {envelope.message_id} was used for another text.",
            "A message id names one message for ever; send this one under a new id.",
        )
    return Posted(place=place, cursor=newest_event(connection))


def _count(connection: Connection, session_key: str) -> int:
    query = select(func.count()).where(mailbox.c.session_key == session_key)
    return int(connection.scalar(query) or 0)
