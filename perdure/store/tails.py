"""The newest part of each transcript in use, kept in memory between two steps.

Invariant: a cache of immutable rows. It is used only while the messages it has seen are as many
as the session has; otherwise it is read anew, so no step works on a stale context.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from perdure.domain.labels import Label
from perdure.domain.messages import Message, Role, ToolCall
from perdure.store.database import Database
from perdure.store.tables import messages
from perdure.store.turns import Begun

#: Messages fetched at a time while a tail is filled.
PAGE = 200
#: Sessions whose tail is kept; the one used longest ago goes first.
KEPT = 200


_NEWER = (
    select(messages)
    .where(
        messages.c.session_key == bindparam("key"),
        messages.c.epoch == bindparam("of_epoch"),
        messages.c.seq > bindparam("after"),
    )
    .order_by(messages.c.seq)
)


@dataclass
class _Tail:
    """What was read: `message_count` is the session's at that moment, other epochs included."""

    epoch: int
    message_count: int
    messages: list[Message]

    def trim(self, budget: int, turn: int) -> None:
        """Let go of the oldest messages that neither the budget nor the turn needs."""
        spare = sum(message.tokens for message in self.messages) - budget
        drop = 0
        for message in self.messages:
            spare -= message.tokens
            if spare < 0 or message.turn >= turn:
                break
            drop += 1
        del self.messages[:drop]


class Tails:
    """Reads the newest messages of an epoch, as far back as a budget reaches."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tails: OrderedDict[str, _Tail] = OrderedDict()

    async def newest(
        self, session_key: str, begun: Begun, *, budget: int, turn: int
    ) -> list[Message]:
        """The newest messages, oldest first: `budget` tokens of them or a little more if there
        are so many, and in any case all of turn `turn`."""
        tail = self._tails.pop(session_key, None)
        if tail is not None and tail.epoch == begun.epoch and tail.messages:
            newer = await self._database.read(
                _newer, session_key, begun.epoch, tail.messages[-1].seq
            )
            tail.messages += newer
            tail.message_count += len(newer)
        if tail is None or (tail.epoch, tail.message_count) != (begun.epoch, begun.message_count):
            found = await self._fill(session_key, begun.epoch, budget, turn)
            tail = _Tail(begun.epoch, begun.message_count, found)
        tail.trim(budget, turn)
        self._tails[session_key] = tail
        if len(self._tails) > KEPT:
            self._tails.popitem(last=False)
        return list(tail.messages)

    async def _fill(self, session_key: str, epoch: int, budget: int, turn: int) -> list[Message]:
        found: list[Message] = []
        tokens = 0
        while True:
            before = found[-1].seq if found else None
            page = await self._database.read(_older, session_key, epoch, before)
            found += page
            tokens += sum(message.tokens for message in page)
            if len(page) < PAGE or (tokens > budget and page[-1].turn < turn):
                return found[::-1]


def _older(
    connection: Connection, session_key: str, epoch: int, before: int | None
) -> list[Message]:
    query = (
        select(messages)
        .where(messages.c.session_key == session_key, messages.c.epoch == epoch)
        .order_by(messages.c.seq.desc())
        .limit(PAGE)
    )
    if before is not None:
        query = query.where(messages.c.seq < before)
    return [_message(row) for row in connection.execute(query)]


def _newer(connection: Connection, session_key: str, epoch: int, after: int) -> list[Message]:
    place = {"key": session_key, "of_epoch": epoch, "after": after}
    return [_message(row) for row in connection.execute(_NEWER, place)]


def _message(row: Row[Any]) -> Message:
    # A context has hundreds of rows, and they were checked when they were written.
    return Message.model_construct(
        id=row.id,
        seq=row.seq,
        turn=row.turn,
        step=row.step,
        role=Role(row.role),
        text=row.text,
        tool_calls=tuple(ToolCall.model_construct(**call) for call in row.tool_calls),
        tool_call_id=row.tool_call_id,
        tool_name=row.tool_name,
        from_session=row.from_session,
        label=Label(row.label),
        tokens=row.tokens,
        at=row.at,
        raw=row.raw,
        exchange=row.exchange,
        aside=row.aside,
    )
