"""Which callers have written to which session.

Invariant: it only grows, and says nothing of what was written.
"""

from __future__ import annotations

from collections import OrderedDict

from sqlalchemy import BindParameter, Connection, bindparam, insert, select

from perdure.store.database import Database
from perdure.store.key_tables import session_callers

#: Notes that are remembered: a conversation is noted once and not with each of its messages.
_REMEMBERED = 10_000

_PLACE: dict[str, BindParameter[str]] = {"session_key": bindparam("key"), "caller": bindparam("by")}
_KNOWN = select(session_callers.c.caller).where(
    *(session_callers.c[name] == value for name, value in _PLACE.items())
)
_NOTE = insert(session_callers).values(**_PLACE)


class SessionCallers:
    """Remembers whose doing a session is."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._noted: OrderedDict[tuple[str, str], None] = OrderedDict()

    def remembers(self, session_key: str, caller: str) -> bool:
        """Whether it was noted here before; what is noted stays so."""
        return (session_key, caller) in self._noted

    async def note(self, session_key: str, caller: str) -> None:
        """Remember that a caller writes to a session."""
        if self.remembers(session_key, caller):
            return
        await self._database.write(_note, session_key, caller)
        self._noted[session_key, caller] = None
        if len(self._noted) > _REMEMBERED:
            self._noted.popitem(last=False)


def _note(connection: Connection, session_key: str, caller: str) -> None:
    place = {"key": session_key, "by": caller}
    if connection.execute(_KNOWN, place).first() is None:
        connection.execute(_NOTE, place)
