"""Sessions that begin with a conversation held elsewhere.

Invariant: what was said before the first message stands in the transcript before it, with its
roles, as turn 0: no answer of the agent's, and no turn of its own. It is laid down with that
message in one transaction, and only where nothing was said yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select

from perdure.domain.envelopes import Envelope
from perdure.domain.messages import Frozen, Role
from perdure.store import mailbox
from perdure.store.database import Database
from perdure.store.mailbox import Place, Posted
from perdure.store.session_writer import SessionWriter
from perdure.store.sessions import make_session
from perdure.store.tables import sessions


class Earlier(Frozen):
    """A message of a conversation before the session: the user's, or an answer to them."""

    role: Role
    text: str


class Seeding:
    """Beginning sessions with what was said elsewhere."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def post(
        self,
        session_key: str,
        agent: str,
        envelope: Envelope,
        text: str,
        earlier: Sequence[Earlier],
    ) -> Posted:
        """Lay a message down as `Mailbox.post` does, behind what was said before it.

        Raises:
            Conflict: when the id was used for another text.
        """
        return await self._database.write(_post, session_key, agent, envelope, text, earlier)


def _post(
    connection: Connection,
    session_key: str,
    agent: str,
    envelope: Envelope,
    text: str,
    earlier: Sequence[Earlier],
) -> Posted:
    posted = mailbox.post(connection, session_key, envelope, text)
    known = connection.execute(
        select(sessions.c.message_count).where(sessions.c.session_key == session_key)
    ).one_or_none()
    if posted.place is not Place.NEW or (known is not None and known.message_count):
        return posted
    if known is None:
        make_session(connection, session_key, agent)
    with SessionWriter(connection, session_key) as session:
        for number, one in enumerate(earlier, 1):
            session.append(
                id=f"seed_{number}",
                turn=0,
                step=0,
                role=one.role,
                text=one.text,
                label=envelope.label,
            )
    return posted
