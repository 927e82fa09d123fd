"""The outline of a session's context, from which a sweep plans: spans and sizes, no text.

Invariant: one transaction's view of what the next turn sees, oldest first, with nothing left out
before what is in it: what is too much to look at is left out at the new end.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, not_, select

from perdure.context.items import Item
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen, Role
from perdure.store.database import Database
from perdure.store.summaries import in_context, newest, uncovered
from perdure.store.sweeps import SweepState, state_of
from perdure.store.tables import messages, sessions

#: Messages fetched at a time.
PAGE = 1_000

_SESSION = select(sessions.c.epoch, sessions.c.turn, sessions.c.label).where(
    sessions.c.session_key == bindparam("key")
)
_RAW = (
    messages.c.session_key == bindparam("key"),
    messages.c.epoch == bindparam("of_epoch"),
    messages.c.seq > bindparam("after"),
    messages.c.seq < bindparam("before"),
    not_(messages.c.aside),
)
_TOKENS = select(func.sum(messages.c.tokens)).where(*_RAW)
_PAGE = (
    select(
        messages.c.id,
        messages.c.seq,
        messages.c.turn,
        messages.c.step,
        messages.c.role,
        messages.c.tokens,
        messages.c.tool_calls,
        messages.c.tool_call_id,
    )
    .where(*_RAW)
    .order_by(messages.c.seq)
    .limit(PAGE)
)
_END = 2_147_483_647


class Outline(Frozen):
    """The context of a session's next turn, as planning sees it. `cut` says that newer messages
    were left out: there are more tokens than were asked for. `seen_tokens` is what the turn `turn`,
    the newest there is, has in its own context: it does not see yet what was published since."""

    epoch: int
    turn: int
    label: Label
    items: tuple[Item, ...]
    cut: bool
    seen_tokens: int
    sweeps: SweepState

    @property
    def tokens(self) -> int:
        """What the items take of a context, estimated."""
        return sum(item.tokens for item in self.items)


class Outlines:
    """Reading outlines."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, session_key: str, most_tokens: int) -> Outline | None:
        """The outline of what a session's next turn will see, its newest part left out behind
        `most_tokens` of raw messages; None for a session that is not there."""
        return await self._database.read(_outline, session_key, most_tokens)


def _outline(connection: Connection, session_key: str, most_tokens: int) -> Outline | None:
    session = connection.execute(_SESSION, {"key": session_key}).one_or_none()
    if session is None:
        return None
    seen = newest(connection, session_key, session.epoch)
    raw: list[Item] = []
    tokens = 0
    cut = False
    for after, before in uncovered(seen):
        place = {"key": session_key, "of_epoch": session.epoch, "before": before or _END}
        while not cut:
            rows = connection.execute(_PAGE, place | {"after": after}).all()
            raw += [_item(row) for row in rows]
            tokens += sum(row.tokens for row in rows)
            if len(rows) < PAGE:
                break
            after = rows[-1].seq
            cut = tokens > most_tokens
    seen_tokens = tokens + sum(summary.tokens for summary in seen)
    if any(summary.from_turn > session.turn for summary in seen):
        seen_tokens = _seen_tokens(connection, session_key, session.epoch, session.turn)
    if cut:
        # Between summaries behind the cut there may be messages that are not here.
        seen = tuple(one for one in seen if one.last_seq < after)
    items = sorted([*raw, *map(Item.of_summary, seen)], key=lambda item: item.first_seq)
    return Outline.model_construct(
        epoch=session.epoch,
        turn=session.turn,
        label=Label(session.label),
        items=tuple(items),
        cut=cut,
        seen_tokens=seen_tokens,
        sweeps=state_of(connection, session_key),
    )


def _seen_tokens(connection: Connection, session_key: str, epoch: int, turn: int) -> int:
    seen = in_context(connection, session_key, epoch, turn)
    tokens = sum(summary.tokens for summary in seen)
    for after, before in uncovered(seen):
        gap = {"after": after, "before": before or _END}
        place = {"key": session_key, "of_epoch": epoch, **gap}
        tokens += connection.scalar(_TOKENS, place) or 0
    return tokens


def _item(row: Row[*tuple[Any, ...]]) -> Item:
    role = Role(row.role)
    return Item(
        id=row.id,
        first_seq=row.seq,
        last_seq=row.seq,
        tokens=row.tokens,
        role=role,
        turn=row.turn,
        step=row.step,
        calls=tuple(call["id"] for call in row.tool_calls),
        answers=row.tool_call_id if role is Role.TOOL else None,
    )
