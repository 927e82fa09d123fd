"""Searching one session's context: what was said, and what summaries say of it.

Invariant: everything of the epoch is searched, the oldest as surely as the newest, and only what
the session may read. An index that fails is no reason to find nothing: then all is read through.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from itertools import zip_longest

from sqlalchemy import Connection, and_, bindparam, select
from sqlalchemy.exc import DBAPIError

from perdure.domain.labels import Label, can_flow, join
from perdure.domain.messages import Frozen, Message
from perdure.search import Query, matches, snippet
from perdure.store.database import Database
from perdure.store.nodes import leaves_of
from perdure.store.readers import Reader
from perdure.store.rows import message_of
from perdure.store.search import Lane, search_messages
from perdure.store.summary_search import search_summaries
from perdure.store.tables import messages, turns

#: How long messages are read through where no index helps, in seconds.
PATIENCE = 10.0
_PAGE = 200
_END = 2_147_483_647

_logger = logging.getLogger(__name__)

_OLDER = (
    select(messages)
    .where(
        messages.c.session_key == bindparam("key"),
        messages.c.epoch == bindparam("of_epoch"),
        messages.c.seq < bindparam("before"),
    )
    .order_by(messages.c.seq.desc())
    .limit(_PAGE)
)

_FIRST_OF_TURN = (
    select(messages.c.seq)
    .join(
        turns,
        and_(turns.c.session_key == messages.c.session_key, turns.c.message_id == messages.c.id),
    )
    .where(turns.c.session_key == bindparam("key"), turns.c.turn == bindparam("of_turn"))
)


class Kind(StrEnum):
    """What was found."""

    MESSAGE = "message"
    SUMMARY = "summary"


class ContextHit(Frozen):
    """One hit; `rank` counts from 1. `summary_id` is the leaf under which a message lies, None
    while it is raw; of a summary it is its own id."""

    kind: Kind
    id: str
    rank: int = 0
    snippet: str
    at: datetime
    summary_id: str | None
    label: Label


class ContextFound(Frozen):
    """What was found, best first, and how. Unless `complete`, there may be more."""

    hits: tuple[ContextHit, ...] = ()
    lane: Lane = Lane.SCAN
    complete: bool = True

    @property
    def label(self) -> Label:
        """The level of all of it."""
        return join(*(hit.label for hit in self.hits))


class ContextSearch:
    """Searching contexts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(
        self,
        session_key: str,
        epoch: int,
        query: Query,
        level: Label,
        *,
        kinds: frozenset[Kind] = frozenset(Kind),
        before_turn: int | None = None,
        limit: int = 10,
    ) -> ContextFound:
        """What matches, up to the level; messages and summaries in turns, each best first.

        Messages of the turn `before_turn` are left out: it has them in its context, and the
        question itself is one of them."""
        said, written = ContextFound(), ContextFound()
        if Kind.MESSAGE in kinds:
            said = await self._messages(session_key, epoch, query, level, before_turn, limit)
        if Kind.SUMMARY in kinds:
            written = await self._summaries(session_key, epoch, query, level, limit)
        turns = zip_longest(said.hits, written.hits)
        hits = [hit for pair in turns for hit in pair if hit is not None][:limit]
        return ContextFound(
            hits=tuple(hit.model_copy(update={"rank": at}) for at, hit in enumerate(hits, 1)),
            lane=said.lane if Kind.MESSAGE in kinds else written.lane,
            complete=said.complete and written.complete,
        )

    async def _messages(
        self,
        session_key: str,
        epoch: int,
        query: Query,
        level: Label,
        before_turn: int | None,
        limit: int,
    ) -> ContextFound:
        asked = (session_key, epoch, query, level, before_turn, limit)
        try:
            found = await self._database.read(_find_messages, *asked)
        except DBAPIError as error:
            # A damaged index can be made again; what was said must be found meanwhile.
            _logger.warning("the search index failed: %s", error.orig)
            found = ContextFound(complete=False)
        if found.hits or found.complete:
            return found
        return await self._database.read(_read_through, *asked)

    async def _summaries(
        self, session_key: str, epoch: int, query: Query, level: Label, limit: int
    ) -> ContextFound:
        asked = (session_key, epoch, query, level, limit)
        try:
            return await self._database.read(_find_summaries, *asked)
        except DBAPIError as error:
            _logger.warning("the search index of summaries failed: %s", error.orig)
            return await self._database.read(_find_summaries, *asked, indexed=False)


def _find_messages(
    connection: Connection,
    session_key: str,
    epoch: int,
    query: Query,
    level: Label,
    before_turn: int | None,
    limit: int,
) -> ContextFound:
    found = search_messages(
        connection,
        query,
        Reader.session(session_key, level),
        session_key=session_key,
        epoch=epoch,
        without=None if before_turn is None else (session_key, before_turn),
        limit=limit,
    )
    leaves = leaves_of(connection, session_key, epoch, [hit.seq for hit in found.hits])
    hits = (
        ContextHit(
            kind=Kind.MESSAGE,
            id=hit.message_id,
            snippet=hit.snippet,
            at=hit.at,
            summary_id=leaves.get(hit.seq),
            label=hit.label,
        )
        for hit in found.hits
    )
    return ContextFound(hits=tuple(hits), lane=found.lane, complete=found.complete)


def _begin_of(connection: Connection, session_key: str, turn: int | None) -> int:
    """The seq of the first message of a turn; beyond all of them, if there is none."""
    place = {"key": session_key, "of_turn": turn}
    begin = None if turn is None else connection.scalar(_FIRST_OF_TURN, place)
    return _END if begin is None else int(begin)


def _find_summaries(
    connection: Connection,
    session_key: str,
    epoch: int,
    query: Query,
    level: Label,
    limit: int,
    *,
    indexed: bool = True,
) -> ContextFound:
    found = search_summaries(
        connection,
        query,
        session_key=session_key,
        epoch=epoch,
        level=level,
        limit=limit,
        indexed=indexed,
    )
    hits = (
        ContextHit(
            kind=Kind.SUMMARY,
            id=hit.id,
            snippet=hit.snippet,
            at=hit.latest_at,
            summary_id=hit.id,
            label=hit.label,
        )
        for hit in found.hits
    )
    return ContextFound(hits=tuple(hits), lane=found.lane, complete=found.complete)


def _read_through(
    connection: Connection,
    session_key: str,
    epoch: int,
    query: Query,
    level: Label,
    before_turn: int | None,
    limit: int,
) -> ContextFound:
    """The newest messages that match, found by reading them all, as far as patience reaches."""
    until = time.monotonic() + PATIENCE
    hits: list[ContextHit] = []
    end = _begin_of(connection, session_key, before_turn)
    for message in _newest_first(connection, session_key, epoch, end):
        if len(hits) == limit or time.monotonic() > until:
            return ContextFound(hits=tuple(hits), complete=False)
        if message.text and can_flow(message.label, level) and matches(query, message.text):
            leaf = leaves_of(connection, session_key, epoch, [message.seq])
            hits.append(
                ContextHit(
                    kind=Kind.MESSAGE,
                    id=message.id,
                    snippet=snippet(query, message.text),
                    at=message.at,
                    summary_id=leaf.get(message.seq),
                    label=message.label,
                )
            )
    return ContextFound(hits=tuple(hits))


def _newest_first(
    connection: Connection, session_key: str, epoch: int, end: int
) -> Iterator[Message]:
    place = {"key": session_key, "of_epoch": epoch, "before": end}
    while page := connection.execute(_OLDER, place).all():
        yield from map(message_of, page)
        place["before"] = page[-1].seq
