"""A session's context as people look at it: all of its DAG, and what a turn saw.

Invariant: reading only, each view in one transaction. What a turn saw is rebuilt from what is
kept: the turns that see each summary, and the messages there were before the turn's last answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, not_, select

from perdure.context.asides import side_thread
from perdure.context.assembly import View
from perdure.context.groups import Groups
from perdure.context.summaries import Summary
from perdure.domain.messages import Frozen, Message
from perdure.store.context_tables import FOREVER
from perdure.store.database import Database
from perdure.store.nodes import Tree, tree
from perdure.store.rows import message_of
from perdure.store.summaries import in_context, uncovered
from perdure.store.sweeps import SweepState, state_of
from perdure.store.tables import messages, sessions, turns

#: Messages fetched at a time.
PAGE = 200

_SESSION = select(sessions).where(sessions.c.session_key == bindparam("key"))
_OF_EPOCH = (
    messages.c.session_key == bindparam("key"),
    messages.c.epoch == bindparam("of_epoch"),
)
_BETWEEN = (*_OF_EPOCH, messages.c.seq > bindparam("after"), messages.c.seq < bindparam("before"))
_STRETCH = select(
    func.count().label("messages"),
    func.sum(messages.c.tokens).label("tokens"),
    func.min(messages.c.seq).label("first_seq"),
    func.max(messages.c.seq).label("last_seq"),
    func.min(messages.c.at).label("earliest_at"),
    func.max(messages.c.at).label("latest_at"),
).where(*_BETWEEN, not_(messages.c.aside))
_OLDER = (
    select(messages)
    .where(*_BETWEEN, not_(messages.c.aside))
    .order_by(messages.c.seq.desc())
    .limit(PAGE)
)
_ASIDE = (
    select(messages)
    .where(*_BETWEEN, messages.c.exchange == bindparam("of_exchange"), messages.c.aside)
    .order_by(messages.c.seq)
)
_TURN = select(turns).where(
    turns.c.session_key == bindparam("key"), turns.c.turn == bindparam("of_turn")
)
_MESSAGE = select(messages).where(
    messages.c.session_key == bindparam("key"), messages.c.id == bindparam("id")
)


class Stretch(Frozen):
    """Raw messages side by side in a context."""

    first_seq: int
    last_seq: int
    messages: int
    tokens: int
    earliest_at: datetime
    latest_at: datetime


class Drawn(Frozen):
    """The whole DAG of the epoch a session is in, and the messages that the next turn sees raw;
    `messages` is how many the epoch has, those said aside not counted."""

    agent: str
    turn: int
    tree: Tree
    raw: tuple[Stretch, ...]
    messages: int
    sweeps: SweepState


@dataclass(frozen=True, slots=True)
class Saw:
    """What a turn could see when it gave its last answer, or sees so far."""

    agent: str
    epoch: int
    message_id: str
    view: View


class ContextViews:
    """Looks at contexts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def drawn(self, session_key: str) -> Drawn | None:
        """The DAG of a session; None when there is no such session."""
        return await self._database.read(_drawn, session_key)

    async def saw(self, session_key: str, turn: int, budget: int) -> Saw | None:
        """What a turn saw, of raw messages as many as `budget` tokens hold or a few more; None
        for a turn that has not begun."""
        return await self._database.read(_saw, session_key, turn, budget)


def _drawn(connection: Connection, session_key: str) -> Drawn | None:
    session = connection.execute(_SESSION, {"key": session_key}).one_or_none()
    if session is None:
        return None
    found = tree(connection, session_key, session.epoch)
    seen = [summary for summary in found.summaries if summary.until_turn is None]
    place = {"key": session_key, "of_epoch": session.epoch}
    stretches = [
        connection.execute(_STRETCH, place | {"after": after, "before": before or FOREVER}).one()
        for after, before in uncovered(seen)
    ]
    raw = tuple(Stretch.model_validate(dict(row._mapping)) for row in stretches if row.messages)
    return Drawn(
        agent=session.agent,
        turn=session.turn,
        tree=found,
        raw=raw,
        messages=sum(one.messages for one in seen) + sum(one.messages for one in raw),
        sweeps=state_of(connection, session_key),
    )


def _saw(connection: Connection, session_key: str, turn: int, budget: int) -> Saw | None:
    key = {"key": session_key}
    session = connection.execute(_SESSION, key).one_or_none()
    begun = connection.execute(_TURN, {**key, "of_turn": turn}).one_or_none()
    if session is None or begun is None:
        return None
    asked = connection.execute(_MESSAGE, {**key, "id": begun.message_id}).one()
    end = _end(connection, session_key, begun)
    seen = in_context(connection, session_key, asked.epoch, turn)
    raw, cut = _raw(connection, session_key, asked, seen, end, budget)
    if asked.aside:
        place = {**key, "of_epoch": asked.epoch, "after": 0, "before": end}
        aside = connection.execute(_ASIDE, place | {"of_exchange": asked.exchange})
        raw = side_thread([*raw, *map(message_of, aside)], asked.exchange)
    view = View(seen, Groups(raw), cut)
    return Saw(agent=session.agent, epoch=asked.epoch, message_id=begun.message_id, view=view)


def _end(connection: Connection, session_key: str, turn: Row[Any]) -> int:
    """The seq of a turn's last answer, which the model did not see: it gave it."""
    if turn.answer_id is None:
        return FOREVER
    answer = connection.execute(_MESSAGE, {"key": session_key, "id": turn.answer_id})
    return int(answer.one().seq)


def _raw(
    connection: Connection,
    session_key: str,
    asked: Row[Any],
    seen: tuple[Summary, ...],
    end: int,
    budget: int,
) -> tuple[list[Message], bool]:
    """The newest messages before `end` that no summary covers, oldest first; whether older ones
    were left out."""
    found: list[Message] = []
    tokens = 0
    for after, upper in reversed(uncovered(seen)):
        before = min(upper or FOREVER, end)
        while before > after:
            if tokens > budget and found[-1].turn < asked.turn:
                return found[::-1], True
            place = {"key": session_key, "of_epoch": asked.epoch}
            rows = connection.execute(_OLDER, place | {"after": after, "before": before})
            page = [message_of(row) for row in rows]
            found += page
            tokens += sum(message.tokens for message in page)
            before = page[-1].seq if len(page) == PAGE else after
    return found[::-1], False
