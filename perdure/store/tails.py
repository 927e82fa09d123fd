"""What a turn sees of each transcript in use, kept in memory between two steps: the summaries in
its context, and the raw messages that none of them covers.

Invariant: a cache of immutable rows. It is used only while the messages it has seen are as many
as the session has, and the summaries are those that the turn sees; otherwise it is read anew, in
one transaction, so no step works on a stale context or on two halves of different ones.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, and_, bindparam, select

from perdure.context.asides import side_thread
from perdure.context.assembly import NO_RESULT, View
from perdure.context.groups import Groups
from perdure.context.summaries import Summary
from perdure.domain.messages import Message
from perdure.store.database import Database
from perdure.store.rows import message_of
from perdure.store.summaries import in_context, seen_by, uncovered
from perdure.store.tables import messages, sessions, turns
from perdure.store.turns import Begun

#: Messages fetched at a time while a tail is filled.
PAGE = 200
#: Sessions whose tail is kept; the one used longest ago goes first.
KEPT = 200


_OF_EPOCH = select(messages).where(
    messages.c.session_key == bindparam("key"),
    messages.c.epoch == bindparam("of_epoch"),
    messages.c.seq > bindparam("after"),
)
_ASIDE = (
    select(messages)
    .where(
        messages.c.session_key == bindparam("key"),
        messages.c.epoch == bindparam("of_epoch"),
        messages.c.exchange == bindparam("of_exchange"),
        messages.c.aside,
    )
    .order_by(messages.c.seq)
)
_SESSION = select(sessions).where(sessions.c.session_key == bindparam("key"))
_OF_TURNS = (
    select(messages.c.seq, messages.c.epoch)
    .join(
        turns,
        and_(turns.c.session_key == messages.c.session_key, turns.c.message_id == messages.c.id),
    )
    .where(turns.c.session_key == bindparam("key"))
)
_BEGIN = _OF_TURNS.where(turns.c.turn == bindparam("of_turn"))
_NEXT_BEGIN = _OF_TURNS.where(turns.c.turn > bindparam("of_turn")).order_by(turns.c.turn).limit(1)
_NEWER = _OF_EPOCH.order_by(messages.c.seq)
_NEWEST = _OF_EPOCH.order_by(messages.c.seq.desc()).limit(PAGE)
_OLDER = _NEWEST.where(messages.c.seq < bindparam("before"))


@dataclass
class _Tail:
    """What was read: `message_count` is the session's at that moment, other epochs included."""

    epoch: int
    message_count: int
    last_seq: int
    summaries: tuple[Summary, ...]
    groups: Groups
    cut: bool


class Tails:
    """Reads what a turn sees of an epoch, as far back as a budget reaches."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tails: OrderedDict[str, _Tail] = OrderedDict()

    async def view(
        self,
        session_key: str,
        begun: Begun,
        *,
        budget: int,
        turn: int,
        exchange: str | None = None,
    ) -> View:
        """All summaries that turn `turn` sees, and the newest raw messages: `budget` tokens of
        them or a little more if there are so many, and in any case all of the turn. A turn that
        is taken aside sees what was said on the side thread of its `exchange`, too.

        The groups are the cache's own and grow with the next step: use them before it."""
        tail = self._tails.pop(session_key, None)
        if tail is not None and tail.epoch == begun.epoch and tail.last_seq:
            newer, seen = await self._database.read(
                _look, session_key, begun.epoch, turn, tail.last_seq
            )
            tail.groups.append(message for message in newer if not message.aside)
            tail.last_seq = newer[-1].seq if newer else tail.last_seq
            tail.message_count += len(newer)
            if seen != tuple(summary.id for summary in tail.summaries):
                tail = None
        if tail is None or (tail.epoch, tail.message_count) != (begun.epoch, begun.message_count):
            tail = await self._database.read(_read, session_key, begun, budget, turn)
        tail.cut = tail.groups.trim(budget, turn) or tail.cut
        self._tails[session_key] = tail
        if len(self._tails) > KEPT:
            self._tails.popitem(last=False)
        if exchange is None:
            return View(tail.summaries, tail.groups, tail.cut)
        aside = await self._database.read(_aside, session_key, begun.epoch, exchange)
        # The call that is open has a placeholder here, and a better one on the side thread.
        main = [one for one in tail.groups.messages(0) if one.text != NO_RESULT]
        both = side_thread([*main, *aside], exchange)
        return View(tail.summaries, Groups(both), tail.cut)

    async def look(self, session_key: str, budget: int) -> View | None:
        """What the next turn of a session would see so far, read anew: for readers that take no
        step. None when there is no such session."""
        return await self._database.read(_next, session_key, budget)

    async def look_back(self, session_key: str, turn: int, budget: int) -> View | None:
        """What turn `turn` saw at its end, while it was in its epoch's context; None when there
        was no such turn. What was left out for lack of room depends on `budget`."""
        return await self._database.read(_past, session_key, turn, budget)


def _next(connection: Connection, session_key: str, budget: int) -> View | None:
    session = connection.execute(_SESSION, {"key": session_key}).one_or_none()
    if session is None:
        return None
    begun = Begun(attempt=1, epoch=session.epoch, message_count=session.message_count)
    tail = _read(connection, session_key, begun, budget, session.turn + 1)
    return View(tail.summaries, tail.groups, tail.cut)


def _past(connection: Connection, session_key: str, turn: int, budget: int) -> View | None:
    place = {"key": session_key, "of_turn": turn}
    begin = connection.execute(_BEGIN, place).one_or_none()
    if begin is None:
        return None
    end = connection.scalar(_NEXT_BEGIN, place)
    begun = Begun(attempt=1, epoch=begin.epoch, message_count=0)
    tail = _read(connection, session_key, begun, budget, turn, end)
    return View(tail.summaries, tail.groups, tail.cut)


def _aside(connection: Connection, session_key: str, epoch: int, exchange: str) -> list[Message]:
    place = {"key": session_key, "of_epoch": epoch, "of_exchange": exchange}
    return [message_of(row) for row in connection.execute(_ASIDE, place)]


def _look(
    connection: Connection, session_key: str, epoch: int, turn: int, after: int
) -> tuple[list[Message], tuple[str, ...]]:
    """The messages behind `after`, and the ids of the summaries that the turn sees."""
    place = {"key": session_key, "of_epoch": epoch, "after": after}
    newer = [message_of(row) for row in connection.execute(_NEWER, place)]
    return newer, seen_by(connection, session_key, epoch, turn)


def _read(
    connection: Connection,
    session_key: str,
    begun: Begun,
    budget: int,
    turn: int,
    end: int | None = None,
) -> _Tail:
    """What the turn sees, of messages before `end` where there is one."""
    seen = in_context(connection, session_key, begun.epoch, turn)
    found: list[Message] = []
    tokens = 0
    cut = False
    for after, before in reversed(uncovered(seen)):
        place: dict[str, Any] = {"key": session_key, "of_epoch": begun.epoch, "after": after}
        before = end if before is None else before
        while not cut:
            older = {} if before is None else {"before": before}
            rows = connection.execute(_OLDER if older else _NEWEST, place | older)
            page = [message_of(row) for row in rows]
            found += page
            tokens += sum(message.tokens for message in page)
            if len(page) < PAGE:
                break
            before = page[-1].seq
            cut = tokens > budget and page[-1].turn < turn
    last_seq = found[0].seq if found else 0
    main = Groups(message for message in reversed(found) if not message.aside)
    return _Tail(begun.epoch, begun.message_count, last_seq, seen, main, cut)
