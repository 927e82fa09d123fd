"""Tool lists of MCP servers, kept by content, and pinned to turns.

Invariant: the first to pin a turn decides what it sees, at all its steps and whoever retries them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, bindparam, func, insert, select

from perdure.domain.messages import Frozen
from perdure.domain.sources import ToolList
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.source_tables import tool_lists, turn_tool_lists

# Statements are built once: building them anew costs more than running them.
_NEWEST_TURN = select(func.max(turn_tool_lists.c.turn)).where(
    turn_tool_lists.c.session_key == bindparam("key")
)
_PINNED = (
    select(tool_lists.c.content)
    .join(turn_tool_lists, turn_tool_lists.c.digest == tool_lists.c.digest)
    .where(
        turn_tool_lists.c.session_key == bindparam("key"),
        turn_tool_lists.c.turn == bindparam("of_turn"),
    )
    .order_by(turn_tool_lists.c.server)
)
_KNOWN = select(tool_lists.c.digest).where(tool_lists.c.digest == bindparam("of_digest"))
_KEEP = insert(tool_lists)
_PIN = insert(turn_tool_lists)
_LAST_PINNED = (
    select(tool_lists.c.content, turn_tool_lists.c.pinned_at)
    .join(turn_tool_lists, turn_tool_lists.c.digest == tool_lists.c.digest)
    .where(
        turn_tool_lists.c.server == bindparam("of_server"),
        turn_tool_lists.c.digest != bindparam("nothing"),
    )
    .order_by(turn_tool_lists.c.pinned_at.desc())
    .limit(1)
)


class LastPinned(Frozen):
    """The list of a server that a turn saw last, and when that turn began."""

    listed: ToolList
    at: datetime


class ToolLists:
    """Pins and reads tool lists."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def pinned(self, session_key: str, turn: int | None = None) -> tuple[ToolList, ...]:
        """The lists of a turn, or of the newest turn that has any; empty where none is pinned."""
        return await self._database.read(_pinned, session_key, turn)

    async def pin(
        self, session_key: str, turn: int, lists: Sequence[ToolList]
    ) -> tuple[ToolList, ...]:
        """Pin `lists` to a turn of a session that is stored; the lists that are pinned, which are
        another attempt's if it came first."""
        return await self._database.write(_pin, session_key, turn, tuple(lists))

    async def last_pinned(self, server: str) -> LastPinned | None:
        """The newest list of a server that a turn saw while it was reachable; None if none did."""
        return await self._database.read(_last_pinned, server)


def _pinned(connection: Connection, session_key: str, turn: int | None) -> tuple[ToolList, ...]:
    if turn is None:
        turn = connection.execute(_NEWEST_TURN, {"key": session_key}).scalar_one()
    if turn is None:
        return ()
    found = connection.execute(_PINNED, {"key": session_key, "of_turn": turn}).scalars()
    return tuple(ToolList.model_validate_json(content) for content in found)


def _pin(
    connection: Connection, session_key: str, turn: int, lists: tuple[ToolList, ...]
) -> tuple[ToolList, ...]:
    earlier = _pinned(connection, session_key, turn)
    if earlier:
        return earlier
    for listed in lists:
        digest = listed.digest
        if connection.execute(_KNOWN, {"of_digest": digest}).one_or_none() is None:
            connection.execute(
                _KEEP,
                {
                    "digest": digest,
                    "server": listed.server,
                    "content": listed.model_dump_json(),
                    "seen_at": now(),
                },
            )
        connection.execute(
            _PIN,
            {
                "session_key": session_key,
                "turn": turn,
                "server": listed.server,
                "digest": digest,
                "pinned_at": now(),
            },
        )
    return lists


def _last_pinned(connection: Connection, server: str) -> LastPinned | None:
    nothing = ToolList(server=server, reachable=False).digest
    row = connection.execute(_LAST_PINNED, {"of_server": server, "nothing": nothing}).one_or_none()
    if row is None:
        return None
    return LastPinned(listed=ToolList.model_validate_json(row.content), at=row.pinned_at)
