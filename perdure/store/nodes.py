"""Reading the DAG of summaries: a node, its children, and the messages it stands for.

Invariant: reading only, one session at a time. A message is handed out as it was stored, byte for
byte.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence

from sqlalchemy import Connection, and_, bindparam, not_, select

from perdure.context.summaries import Summary
from perdure.domain.messages import Frozen, Message
from perdure.store.context_tables import summaries, summary_sources
from perdure.store.database import Database
from perdure.store.rows import message_of, summary_of
from perdure.store.tables import messages, sessions

#: Messages read at a time: each may be a megabyte.
PAGE = 100

_NODE = select(summaries).where(
    summaries.c.session_key == bindparam("key"), summaries.c.id == bindparam("id")
)
_NAMED = select(summaries).where(
    summaries.c.session_key == bindparam("key"),
    summaries.c.id.in_(bindparam("ids", expanding=True)),
)
_CHILDREN = (
    select(summaries)
    .join(
        summary_sources,
        and_(
            summary_sources.c.session_key == summaries.c.session_key,
            summary_sources.c.child_id == summaries.c.id,
        ),
    )
    .where(
        summary_sources.c.session_key == bindparam("key"),
        summary_sources.c.parent_id == bindparam("id"),
    )
    .order_by(summary_sources.c.position)
)
_LEAF = (
    select(summaries.c.id, summaries.c.last_seq)
    .where(
        summaries.c.session_key == bindparam("key"),
        summaries.c.epoch == bindparam("of_epoch"),
        summaries.c.depth == 0,
        summaries.c.first_seq <= bindparam("seq"),
    )
    .order_by(summaries.c.first_seq.desc())
    .limit(1)
)
_MESSAGES = (
    select(messages)
    .where(
        messages.c.session_key == bindparam("key"),
        messages.c.epoch == bindparam("of_epoch"),
        messages.c.seq > bindparam("after"),
        messages.c.seq <= bindparam("last"),
        not_(messages.c.aside),
    )
    .order_by(messages.c.seq)
    .limit(PAGE)
)
_MESSAGE = select(messages).where(
    messages.c.session_key == bindparam("key"),
    messages.c.epoch == bindparam("of_epoch"),
    messages.c.id == bindparam("id"),
)
_EPOCH = select(sessions.c.epoch).where(sessions.c.session_key == bindparam("key"))
_OF_EPOCH = (
    select(summaries)
    .where(summaries.c.session_key == bindparam("key"), summaries.c.epoch == bindparam("of_epoch"))
    .order_by(summaries.c.first_seq, summaries.c.depth.desc())
)
_LINKS = (
    select(summary_sources.c.parent_id, summary_sources.c.child_id)
    .where(summary_sources.c.session_key == bindparam("key"))
    .order_by(summary_sources.c.parent_id, summary_sources.c.position)
)


class Tree(Frozen):
    """All summaries of an epoch, and the children of each that has some, in order."""

    epoch: int
    summaries: tuple[Summary, ...]
    children: dict[str, tuple[str, ...]]


class Nodes:
    """Looking into the DAG."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def epoch(self, session_key: str) -> int | None:
        """The epoch a session is in; None when there is no such session."""
        return await self._database.read(_epoch, session_key)

    async def summary(self, session_key: str, summary_id: str) -> Summary | None:
        """A summary of a session, of any epoch."""
        return await self._database.read(_summary, session_key, summary_id)

    async def named(self, session_key: str, ids: Sequence[str]) -> list[Summary]:
        """See `named`."""
        return await self._database.read(named, session_key, ids)

    async def children(self, session_key: str, summary_id: str) -> list[Summary]:
        """What a summary was made from, in order; nothing for a leaf."""
        return await self._database.read(_children, session_key, summary_id)

    async def leaves_of(self, session_key: str, epoch: int, seqs: Iterable[int]) -> dict[int, str]:
        """See `leaves_of`."""
        return await self._database.read(leaves_of, session_key, epoch, tuple(seqs))

    async def message(self, session_key: str, epoch: int, message_id: str) -> Message | None:
        """A message of an epoch."""
        return await self._database.read(_message, session_key, epoch, message_id)

    async def messages(
        self, session_key: str, epoch: int, first_seq: int, last_seq: int
    ) -> AsyncIterator[list[Message]]:
        """The messages of a span, in order, page by page: there may be a million of them. What
        was said on a side thread is in no context and under no summary."""
        after = first_seq - 1
        while page := await self._database.read(_messages, session_key, epoch, after, last_seq):
            yield page
            after = page[-1].seq

    async def tree(self, session_key: str, epoch: int | None = None) -> Tree:
        """The whole DAG of an epoch, by default of the one the session is in."""
        return await self._database.read(tree, session_key, epoch)


def _epoch(connection: Connection, session_key: str) -> int | None:
    return connection.scalar(_EPOCH, {"key": session_key})


def _summary(connection: Connection, session_key: str, summary_id: str) -> Summary | None:
    row = connection.execute(_NODE, {"key": session_key, "id": summary_id}).one_or_none()
    return None if row is None else summary_of(row)


def named(connection: Connection, session_key: str, ids: Sequence[str]) -> list[Summary]:
    """The summaries of these ids, in their order; those that are not there are left out."""
    rows = connection.execute(_NAMED, {"key": session_key, "ids": list(ids)})
    known = {row.id: summary_of(row) for row in rows}
    return [known[name] for name in ids if name in known]


def _children(connection: Connection, session_key: str, summary_id: str) -> list[Summary]:
    rows = connection.execute(_CHILDREN, {"key": session_key, "id": summary_id})
    return [summary_of(row) for row in rows]


def leaves_of(
    connection: Connection, session_key: str, epoch: int, seqs: Sequence[int]
) -> dict[int, str]:
    """The leaf under which each of these messages lies; those that are raw are left out."""
    found: dict[int, str] = {}
    for seq in seqs:
        place = {"key": session_key, "of_epoch": epoch, "seq": seq}
        leaf = connection.execute(_LEAF, place).one_or_none()
        if leaf is not None and leaf.last_seq >= seq:
            found[seq] = leaf.id
    return found


def _message(
    connection: Connection, session_key: str, epoch: int, message_id: str
) -> Message | None:
    place = {"key": session_key, "of_epoch": epoch, "id": message_id}
    row = connection.execute(_MESSAGE, place).one_or_none()
    return None if row is None else message_of(row)


def _messages(
    connection: Connection, session_key: str, epoch: int, after: int, last: int
) -> list[Message]:
    place = {"key": session_key, "of_epoch": epoch, "after": after, "last": last}
    return [message_of(row) for row in connection.execute(_MESSAGES, place)]


def tree(connection: Connection, session_key: str, epoch: int | None) -> Tree:
    """See `Nodes.tree`."""
    if epoch is None:
        epoch = _epoch(connection, session_key) or 0
    rows = connection.execute(_OF_EPOCH, {"key": session_key, "of_epoch": epoch})
    found = tuple(summary_of(row) for row in rows)
    known = {summary.id for summary in found}
    children: dict[str, tuple[str, ...]] = {}
    for link in connection.execute(_LINKS, {"key": session_key}):
        if link.parent_id in known:
            children[link.parent_id] = (*children.get(link.parent_id, ()), link.child_id)
    return Tree(epoch=epoch, summaries=found, children=children)
