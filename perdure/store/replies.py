"""Where answers go that leave by a channel: written with their message, read when its turn ends.

Invariant: a message that is admitted with a place for its answer keeps it, whoever takes the
message; and an answer is owed until it is settled that it left, or never will.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, delete, insert, select, update

from perdure.domain.envelopes import Envelope
from perdure.domain.replies import OwedReply, ReplyTo
from perdure.domain.states import TurnState
from perdure.store import mailbox
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.mailbox import Place, Posted
from perdure.store.reply_tables import replies
from perdure.store.tables import sessions, turns


class LeftBehind(OwedReply):
    """An answer that is still owed, by which channel, and when its turn ended."""

    channel: str
    ended_at: datetime


class Replies:
    """The replies table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def post(
        self, session_key: str, envelope: Envelope, text: str, reply_to: ReplyTo
    ) -> Posted:
        """Lay a message down as `Mailbox.post` does, with where its answer goes.

        Raises:
            Conflict: when the id was used for another text.
        """
        return await self._database.write(_post, session_key, envelope, text, reply_to)

    async def owed(self, session_key: str, message_id: str) -> ReplyTo | None:
        """Where the answer to a message goes; None when none is owed, or no longer."""
        return await self._database.read(_owed, session_key, message_id)

    async def settle(self, session_key: str, message_id: str) -> None:
        """Record that nothing more is to be done for an answer."""
        await self._database.write(_settle, session_key, message_id)

    async def left_behind(self, before: datetime, limit: int) -> tuple[LeftBehind, ...]:
        """Answers that are still owed though their turn ended before that: the channel was away,
        or their session's workflow was terminated."""
        return await self._database.read(_left_behind, before, limit)


def _post(
    connection: Connection, session_key: str, envelope: Envelope, text: str, reply_to: ReplyTo
) -> Posted:
    posted = mailbox.post(connection, session_key, envelope, text)
    if posted.place is Place.NEW:
        # It may have been laid down before, and discarded by a reset.
        connection.execute(
            delete(replies).where(
                replies.c.session_key == session_key, replies.c.message_id == envelope.message_id
            )
        )
        connection.execute(
            insert(replies).values(
                session_key=session_key,
                message_id=envelope.message_id,
                **reply_to.model_dump(),
                at=now(),
            )
        )
    return posted


def _owed(connection: Connection, session_key: str, message_id: str) -> ReplyTo | None:
    row = connection.execute(
        select(*(replies.c[name] for name in ReplyTo.model_fields)).where(
            replies.c.session_key == session_key,
            replies.c.message_id == message_id,
            replies.c.settled_at.is_(None),
        )
    ).one_or_none()
    return None if row is None else ReplyTo.model_validate(dict(row._mapping))


def _settle(connection: Connection, session_key: str, message_id: str) -> None:
    connection.execute(
        update(replies)
        .where(replies.c.session_key == session_key, replies.c.message_id == message_id)
        .values(settled_at=now())
    )


def _left_behind(connection: Connection, before: datetime, limit: int) -> tuple[LeftBehind, ...]:
    query = (
        select(
            *(replies.c[name] for name in ("session_key", "message_id", "channel")),
            sessions.c.agent,
            turns.c.turn,
            turns.c.finished_at.label("ended_at"),
        )
        .join(
            turns,
            (turns.c.session_key == replies.c.session_key)
            & (turns.c.message_id == replies.c.message_id),
        )
        .join(sessions, sessions.c.session_key == replies.c.session_key)
        .where(
            replies.c.settled_at.is_(None),
            turns.c.state != TurnState.RUNNING,
            turns.c.finished_at < before,
        )
        .order_by(replies.c.at)
        .limit(limit)
    )
    rows = connection.execute(query)
    return tuple(LeftBehind.model_validate(dict(row._mapping)) for row in rows)
