"""Summaries as the store keeps them: published once, seen by turns, never changed.

Invariant: at every moment each message of an epoch is raw, or lies under exactly one summary that
nothing has replaced. A summary is published in one transaction that looks again at what it was
made from; whoever makes it a second time finds it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection, bindparam, insert, not_, select, update

from perdure.context.summaries import Summary, summary_id
from perdure.domain.labels import Label, join
from perdure.domain.messages import Frozen, Usage
from perdure.domain.states import EventKind
from perdure.store.clock import now
from perdure.store.context_tables import FOREVER, summaries, summary_sources
from perdure.store.database import Database
from perdure.store.rows import summary_of
from perdure.store.session_writer import SessionWriter
from perdure.store.sweeps import spend
from perdure.store.tables import messages

#: A stretch of `seq` that no summary covers: behind the first number and before the second, which
#: is None for the newest.
Gap = tuple[int, int | None]

# Statements are built once: building them anew costs more than running them.
_OF_EPOCH = (
    summaries.c.session_key == bindparam("key"),
    summaries.c.epoch == bindparam("of_epoch"),
)
_SEEN = (*_OF_EPOCH, summaries.c.until_turn > bindparam("turn"))
_IN_CONTEXT = (
    select(summaries)
    .where(*_SEEN, summaries.c.from_turn <= bindparam("turn"))
    .order_by(summaries.c.first_seq)
)
_SEEN_BY = _IN_CONTEXT.with_only_columns(summaries.c.id)
_NODES = select(summaries).where(
    summaries.c.session_key == bindparam("key"),
    summaries.c.id.in_(bindparam("ids", expanding=True)),
)
_SUPERSEDE = (
    update(summaries)
    .where(
        summaries.c.session_key == bindparam("key"),
        summaries.c.id.in_(bindparam("ids", expanding=True)),
    )
    .values(until_turn=bindparam("at_turn"))
)
_ADOPT_NEW = (
    update(summaries)
    .where(*_OF_EPOCH, summaries.c.from_turn > bindparam("at_turn"))
    .values(from_turn=bindparam("at_turn"))
)
_ADOPT_REPLACED = (
    update(summaries)
    .where(
        *_OF_EPOCH,
        summaries.c.until_turn > bindparam("at_turn"),
        summaries.c.until_turn < FOREVER,
    )
    .values(until_turn=bindparam("at_turn"))
)
_LIES_IN = (
    messages.c.session_key == bindparam("key"),
    messages.c.epoch == bindparam("of_epoch"),
    messages.c.seq > bindparam("after"),
    messages.c.seq < bindparam("before"),
    # What was said on a side thread is in no context.
    not_(messages.c.aside),
)
_MEMBERS = (
    select(
        messages.c.id,
        messages.c.seq,
        messages.c.tokens,
        messages.c.label,
        messages.c.at,
        messages.c.tool_calls,
    )
    .where(*_LIES_IN)
    .order_by(messages.c.seq)
)
_ANY_MEMBER = select(messages.c.seq).where(*_LIES_IN).limit(1)
_ADD = insert(summaries)
_LINK = insert(summary_sources)


class Draft(Frozen):
    """A summary that was written and is to be published.

    `sources` are the messages (depth 0) or summaries it was made from, in order; they lie between
    `first_seq` and `last_seq`. `usage` is what writing it took, failed tries included.
    """

    depth: int
    sources: tuple[str, ...]
    first_seq: int
    last_seq: int
    text: str
    tokens: int
    fallback: bool = False
    model: str | None = None
    usage: Usage = Usage()


class Place(StrEnum):
    """What became of a draft: published now, or before, or what it was made from has changed."""

    NEW = "new"
    KNOWN = "known"
    STALE = "stale"


class Summaries:
    """Publishing summaries, and what a turn sees of them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def publish(
        self, session_key: str, epoch: int, draft: Draft, *, in_turn: int | None = None
    ) -> Place:
        """Put a summary into the place of its sources, from the session's next turn on, or from
        turn `in_turn` on if that is the one under way.

        A draft whose sources are not what they were changes nothing but what was spent: another
        epoch has begun, they are summarised already, or another message has come between them.
        """
        return await self._database.write(_publish, session_key, epoch, draft, in_turn)

    async def adopt(self, session_key: str, epoch: int, turn: int) -> None:
        """Let turn `turn`, which is under way, see at once what was published for the next."""
        await self._database.write(_adopt, session_key, epoch, turn)

    async def view(self, session_key: str, epoch: int, turn: int) -> tuple[Summary, ...]:
        """The summaries in the context of a turn, past or present, in order."""
        return await self._database.read(in_context, session_key, epoch, turn)


def in_context(
    connection: Connection, session_key: str, epoch: int, turn: int
) -> tuple[Summary, ...]:
    """The summaries in the context of a turn, in order; their spans are disjoint."""
    place = {"key": session_key, "of_epoch": epoch, "turn": turn}
    return tuple(summary_of(row) for row in connection.execute(_IN_CONTEXT, place))


def seen_by(connection: Connection, session_key: str, epoch: int, turn: int) -> tuple[str, ...]:
    """The ids of `in_context`."""
    place = {"key": session_key, "of_epoch": epoch, "turn": turn}
    return tuple(connection.scalars(_SEEN_BY, place))


def newest(connection: Connection, session_key: str, epoch: int) -> tuple[Summary, ...]:
    """The summaries that nothing has replaced, whichever turn is the first to see them."""
    return in_context(connection, session_key, epoch, FOREVER - 1)


def uncovered(seen: Sequence[Summary]) -> list[Gap]:
    """The stretches that summaries, in order and disjoint, leave raw; oldest first."""
    gaps: list[Gap] = []
    after = 0
    for summary in seen:
        if summary.first_seq > after + 1:
            gaps.append((after, summary.first_seq))
        after = summary.last_seq
    return [*gaps, (after, None)]


def members_between(
    connection: Connection, session_key: str, epoch: int, after: int, before: int
) -> bool:
    """Whether a message of the epoch lies behind `after` and before `before`."""
    place = {"key": session_key, "of_epoch": epoch, "after": after, "before": before}
    return connection.scalar(_ANY_MEMBER, place) is not None


class _Span(Frozen):
    """What a draft covers, as the transaction finds it."""

    last_seq: int
    messages: int
    source_tokens: int
    label: Label
    earliest_at: datetime
    latest_at: datetime


def _publish(
    connection: Connection, session_key: str, epoch: int, draft: Draft, in_turn: int | None
) -> Place:
    node = summary_id(session_key, epoch, draft.depth, draft.sources)
    with SessionWriter(connection, session_key) as session:
        spend(session, draft.usage)
        if _nodes(connection, session_key, (node,)):
            return Place.KNOWN
        if session.row.epoch != epoch:
            return Place.STALE
        covered = (_leaf if draft.depth == 0 else _condensed)(connection, session_key, epoch, draft)
        if covered is None:
            return Place.STALE
        turn = int(session.row.turn)
        from_turn = turn + 1 if in_turn is None or in_turn < turn else in_turn
        connection.execute(
            _ADD,
            {
                **draft.model_dump(exclude={"sources", "usage"}),
                **covered.model_dump(),
                "session_key": session_key,
                "id": node,
                "epoch": epoch,
                "from_turn": from_turn,
                "until_turn": FOREVER,
                "created_at": now(),
            },
        )
        if draft.depth > 0:
            place = {"key": session_key, "ids": draft.sources, "at_turn": from_turn}
            connection.execute(_SUPERSEDE, place)
            connection.execute(_LINK, _links(session_key, node, draft.sources))
        session.tell(
            EventKind.CONTEXT_COMPACTED,
            summary_id=node,
            depth=draft.depth,
            messages=covered.messages,
            source_tokens=covered.source_tokens,
            tokens=draft.tokens,
            fallback=draft.fallback,
            from_turn=from_turn,
        )
    return Place.NEW


def _leaf(connection: Connection, session_key: str, epoch: int, draft: Draft) -> _Span | None:
    """What a leaf covers, if the messages between its ends are still its sources, all raw."""
    place = {"key": session_key, "of_epoch": epoch}
    between = {"after": draft.first_seq - 1, "before": draft.last_seq + 1}
    members = connection.execute(_MEMBERS, place | between).all()
    if tuple(row.id for row in members) != draft.sources:
        return None
    # A result that was not recorded yet has its place behind its call: under the same summary.
    end = max(row.seq + len(row.tool_calls) for row in members)
    end = max(end, draft.last_seq)
    if members_between(connection, session_key, epoch, draft.last_seq, end + 1):
        return None
    if any(
        summary.first_seq <= end and summary.last_seq >= draft.first_seq
        for summary in newest(connection, session_key, epoch)
    ):
        return None
    return _Span(
        last_seq=end,
        messages=len(members),
        source_tokens=sum(row.tokens for row in members),
        label=join(*(Label(row.label) for row in members)),
        earliest_at=min(row.at for row in members),
        latest_at=max(row.at for row in members),
    )


def _condensed(connection: Connection, session_key: str, epoch: int, draft: Draft) -> _Span | None:
    """What a condensed summary covers, if its sources are in the context, one behind the other
    with no raw message between them."""
    known = _nodes(connection, session_key, draft.sources)
    children = [known[child] for child in draft.sources if child in known]
    if len(children) != len(draft.sources) or any(
        child.epoch != epoch or child.until_turn is not None for child in children
    ):
        return None
    for older, newer in pairwise(children):
        if newer.first_seq <= older.last_seq:
            return None
        if members_between(connection, session_key, epoch, older.last_seq, newer.first_seq):
            return None
    if (children[0].first_seq, children[-1].last_seq) != (draft.first_seq, draft.last_seq):
        return None
    return _Span(
        last_seq=draft.last_seq,
        messages=sum(child.messages for child in children),
        source_tokens=sum(child.tokens for child in children),
        label=join(*(child.label for child in children)),
        earliest_at=min(child.earliest_at for child in children),
        latest_at=max(child.latest_at for child in children),
    )


def _nodes(connection: Connection, session_key: str, ids: Sequence[str]) -> Mapping[str, Summary]:
    rows = connection.execute(_NODES, {"key": session_key, "ids": ids})
    return {row.id: summary_of(row) for row in rows}


def _links(session_key: str, parent: str, children: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "session_key": session_key,
            "parent_id": parent,
            "position": position,
            "child_id": child,
        }
        for position, child in enumerate(children)
    ]


def _adopt(connection: Connection, session_key: str, epoch: int, turn: int) -> None:
    place = {"key": session_key, "of_epoch": epoch, "at_turn": turn}
    connection.execute(_ADOPT_NEW, place)
    connection.execute(_ADOPT_REPLACED, place)
