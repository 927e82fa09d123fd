"""Searching one session's context: what was said, and what summaries say of it.

Invariant: everything of the epoch is searched, the oldest as surely as the newest, and only what
the session may read. An index that fails is no reason to find nothing: then all is read through.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import zip_longest

from sqlalchemy import Connection, and_, bindparam, select
from sqlalchemy.exc import DBAPIError

from perdure.context.summaries import Summary
from perdure.domain.labels import Label, can_flow, join
from perdure.domain.messages import Frozen, Message
from perdure.search import Mode, Query, fold, matches, matches_folded, scores, snippet
from perdure.store.context_tables import summaries
from perdure.store.database import Database
from perdure.store.nodes import leaves_of, named
from perdure.store.readers import Reader
from perdure.store.rows import message_of
from perdure.store.search import Lane, MessageHit, search_messages
from perdure.store.tables import messages, turns

#: Folded texts of summaries kept in memory, in characters; those used longest ago go first. Half
#: a million messages have about 24 million characters of summaries.
KEPT = 60_000_000
#: How long messages are read through where no index helps, in seconds.
PATIENCE = 10.0
_PAGE = 200
#: Hits asked for beyond what is wanted, and how often: those of the turn that asks are left out,
#: and a long turn may have hundreds.
_LEFT_OUT = 50
_PAGES = 10
_END = 2_147_483_647
#: Of a long text this much is scored.
_SCORED = 20_000

_logger = logging.getLogger(__name__)

_IDS = (
    select(summaries.c.id, summaries.c.label)
    .where(summaries.c.session_key == bindparam("key"), summaries.c.epoch == bindparam("of_epoch"))
    .order_by(summaries.c.first_seq.desc(), summaries.c.depth)
)
_TEXTS = select(summaries.c.id, summaries.c.text).where(
    summaries.c.session_key == bindparam("key"),
    summaries.c.id.in_(bindparam("ids", expanding=True)),
)
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
    """Searching contexts. Summaries never change, so their folded texts are kept in memory."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._folded = _Folded()

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
            written = await self._database.read(
                _find_summaries, self._folded, session_key, epoch, query, level, limit
            )
        turns = zip_longest(said.hits, written.hits)
        hits = [hit for pair in turns for hit in pair if hit is not None][:limit]
        return ContextFound(
            hits=tuple(hit.model_copy(update={"rank": at}) for at, hit in enumerate(hits, 1)),
            lane=said.lane if Kind.MESSAGE in kinds else Lane.SCAN,
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


class _Folded:
    """Folded texts of summaries, by session and id."""

    def __init__(self) -> None:
        self._texts: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def of(
        self, connection: Connection, session_key: str, ids: Sequence[str]
    ) -> list[tuple[str, str]]:
        """Each of the ids with its folded text, in order."""
        with self._lock:
            known = {name: self._texts.get((session_key, name)) for name in ids}
        missing = [name for name, text in known.items() if text is None]
        for start in range(0, len(missing), _PAGE):
            place = {"key": session_key, "ids": missing[start : start + _PAGE]}
            known |= {row.id: fold(row.text) for row in connection.execute(_TEXTS, place)}
        found = [(name, text) for name, text in known.items() if text is not None]
        with self._lock:
            for name, text in found:
                self._keep((session_key, name), text)
            while self._size > KEPT:
                self._size -= len(self._texts.popitem(last=False)[1])
        return found

    def _keep(self, place: tuple[str, str], text: str) -> None:
        if place not in self._texts:
            self._size += len(text)
        self._texts[place] = text
        self._texts.move_to_end(place)


def _find_messages(
    connection: Connection,
    session_key: str,
    epoch: int,
    query: Query,
    level: Label,
    before_turn: int | None,
    limit: int,
) -> ContextFound:
    end = _begin_of(connection, session_key, before_turn)
    reader = Reader.session(session_key, level)
    kept: list[MessageHit] = []
    size = limit + _LEFT_OUT
    for page in range(_PAGES):
        found = search_messages(
            connection,
            query,
            reader,
            session_key=session_key,
            epoch=epoch,
            limit=size,
            offset=page * size,
        )
        kept += [hit for hit in found.hits if hit.seq < end]
        if len(kept) >= limit or len(found.hits) < size:
            break
    kept = kept[:limit]
    leaves = leaves_of(connection, session_key, epoch, [hit.seq for hit in kept])
    hits = (
        ContextHit(
            kind=Kind.MESSAGE,
            id=hit.message_id,
            snippet=hit.snippet,
            at=hit.at,
            summary_id=leaves.get(hit.seq),
            label=hit.label,
        )
        for hit in kept
    )
    return ContextFound(hits=tuple(hits), lane=found.lane, complete=found.complete)


def _begin_of(connection: Connection, session_key: str, turn: int | None) -> int:
    """The seq of the first message of a turn; beyond all of them, if there is none."""
    place = {"key": session_key, "of_turn": turn}
    begin = None if turn is None else connection.scalar(_FIRST_OF_TURN, place)
    return _END if begin is None else int(begin)


def _find_summaries(
    connection: Connection,
    folded: _Folded,
    session_key: str,
    epoch: int,
    query: Query,
    level: Label,
    limit: int,
) -> ContextFound:
    place = {"key": session_key, "of_epoch": epoch}
    ids = [row.id for row in connection.execute(_IDS, place) if can_flow(Label(row.label), level)]
    texts = folded.of(connection, session_key, ids)
    for mode in Mode:
        matching = [one for one in texts if matches_folded(query, one[1], mode)]
        if matching:
            scored = zip(
                matching,
                scores(query, [text[:_SCORED] for _, text in matching], mode),
                strict=True,
            )
            # Sorting is stable: of equals the newer comes first.
            best = sorted(scored, key=lambda one: one[1], reverse=True)[:limit]
            found = named(connection, session_key, [name for (name, _), _ in best])
            return ContextFound(hits=tuple(_summary_hit(query, mode, one) for one in found))
    return ContextFound()


def _summary_hit(query: Query, mode: Mode, summary: Summary) -> ContextHit:
    return ContextHit(
        kind=Kind.SUMMARY,
        id=summary.id,
        snippet=snippet(query, summary.text, mode),
        at=summary.latest_at,
        summary_id=summary.id,
        label=summary.label,
    )


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
