"""What a turn said, for those who remember it.

Invariant: read-only; it rewrites nothing of the transcript.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, select

from perdure.domain.labels import Label
from perdure.domain.messages import Frozen, Role
from perdure.store.database import Database
from perdure.store.tables import messages

_OF_TURN = (
    select(
        messages.c.id,
        messages.c.role,
        messages.c.text,
        messages.c.from_session,
        messages.c.tool_name,
        messages.c.label,
    )
    .where(messages.c.session_key == bindparam("key"), messages.c.turn == bindparam("of_turn"))
    .order_by(messages.c.seq)
)


class Said(Frozen):
    """A message of a turn. `from_session` is the session that sent it, if one did."""

    id: str
    role: Role
    text: str
    from_session: str | None = None
    tool_name: str | None = None
    label: Label

    @property
    def by_others(self) -> bool:
        """Whether neither a person nor the agent itself said it."""
        return self.role is Role.TOOL or self.from_session is not None


class Remembering:
    """Reads turns as a whole."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def turn(self, session_key: str, turn: int) -> list[Said]:
        """What was said in a turn, in order."""
        return await self._database.read(_turn, session_key, turn)


def _turn(connection: Connection, session_key: str, turn: int) -> list[Said]:
    found = connection.execute(_OF_TURN, {"key": session_key, "of_turn": turn})
    return [Said.model_validate(dict(row._mapping)) for row in found]
