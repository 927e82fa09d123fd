"""Full-text search over transcripts: what is found is what `perdure.search.matches` says.

Words are looked for first; if no message has them all, parts of words are. Within what the reader
may see, and as if nothing else were there, matches are ranked by BM25.

Invariant: visibility is decided inside the engine's query. An answer that could not be worked out
to its end says so: `complete` is False.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from sqlalchemy import Connection, bindparam, func, or_, select

from perdure.domain.labels import Label
from perdure.domain.messages import Frozen, Role
from perdure.search import Mode, Query, fold, matches, modes, scores, snippet
from perdure.store.database import Database
from perdure.store.dialect import index_of
from perdure.store.readers import Reader
from perdure.store.search_index import Candidate, Scope
from perdure.store.search_tables import search_documents, search_sessions
from perdure.store.tables import messages, turns

#: Matches are counted so far; a person does not tell more of them apart.
COUNTED = 1_000
#: The same where they must be read to be told, at about 20 µs each.
VERIFIED = 300
#: The newest matches, this many, are ranked among each other; older ones follow by age. Reading
#: their texts is most of what a search costs: about 10 µs each.
RANKED = 200
#: Candidates of an index that are verified for one answer.
EXAMINED = 20_000
#: Messages that are read through, the newest, where no index can help: for parts of words of one
#: or two letters.
SCANNED = 5_000
#: Of a long text this much is scored.
_SCORED = 20_000

#: The number under which the indexes know a session.
NUMBER = select(search_sessions.c.number).where(search_sessions.c.session_key == bindparam("key"))
_SEEN_NUMBER = NUMBER.where(
    or_(search_sessions.c.level <= bindparam("sees"), search_sessions.c.number == bindparam("own")),
    search_sessions.c.tenant == func.coalesce(bindparam("of_tenant"), search_sessions.c.tenant),
)
#: The first message of a turn, and the number of its session.
_TURN = (
    select(search_sessions.c.number, messages.c.seq)
    .join(messages, messages.c.session_key == search_sessions.c.session_key)
    .join(turns, turns.c.session_key == search_sessions.c.session_key)
    .where(
        search_sessions.c.session_key == bindparam("key"),
        turns.c.turn == bindparam("of_turn"),
        messages.c.id == turns.c.message_id,
    )
)

_Rows: TypeAlias = list[Candidate]


class Lane(StrEnum):
    """How an answer was found: by words, by parts of words, or by reading through."""

    FTS = "fts"
    TRIGRAM = "trigram"
    SCAN = "scan"


class MessageHit(Frozen):
    """A message that was found. `score` compares the hits of one answer; it is 0 behind those
    that were ranked."""

    session_key: str
    message_id: str
    seq: int
    role: Role
    snippet: str
    score: float
    label: Label
    at: datetime


class Found(Frozen):
    """One page of what was found, best first. Unless `complete`, there are `total` at least."""

    hits: tuple[MessageHit, ...] = ()
    total: int = 0
    complete: bool = True
    lane: Lane = Lane.FTS


class Search:
    """Searching what was said."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def messages(
        self,
        query: Query,
        reader: Reader,
        *,
        session_key: str | None = None,
        epoch: int | None = None,
        role: Role | None = None,
        without: tuple[str, int] | None = None,
        until: int | None = None,
        limit: int = 10,
        offset: int = 0,
    ) -> Found:
        """See `search_messages`."""
        return await self._database.read(
            search_messages,
            query,
            reader,
            session_key=session_key,
            epoch=epoch,
            role=role,
            without=without,
            until=until,
            limit=limit,
            offset=offset,
        )

    async def newest(self) -> int:
        """The newest document: a search `until` it finds the same while messages are added."""
        return await self._database.read(_newest)


def _newest(connection: Connection) -> int:
    return int(connection.scalar(select(func.max(search_documents.c.doc))) or 0)


def search_messages(
    connection: Connection,
    query: Query,
    reader: Reader,
    *,
    session_key: str | None = None,
    epoch: int | None = None,
    role: Role | None = None,
    without: tuple[str, int] | None = None,
    until: int | None = None,
    limit: int = 10,
    offset: int = 0,
) -> Found:
    """The messages with text that match, as far as the reader may see them and their sessions.

    Args:
        connection: of the store.
        query: as `perdure.search.parse` reads it; the empty one matches everything.
        reader: who looks.
        session_key: only of this session; one that is not there has no messages.
        epoch: only of this epoch.
        role: only of this speaker.
        without: a session and a turn of it: what was said from that turn on is left out. Who asks
            in a turn has it before them.
        until: only what was added up to this document.
        limit: how many at most.
        offset: how many of the best to skip.
    """
    number = own = turn = None
    if reader.own is not None:
        own = connection.scalar(NUMBER, {"key": reader.own})
    if session_key is not None:
        number = connection.scalar(
            _SEEN_NUMBER,
            {
                "key": session_key,
                "sees": reader.sees.rank,
                "own": own,
                "of_tenant": reader.tenant,
            },
        )
        if number is None:
            return Found()
    if without is not None:
        turn = connection.execute(_TURN, {"key": without[0], "of_turn": without[1]}).one_or_none()
    scope = Scope(
        level=reader.level.rank,
        sees=reader.sees.rank,
        tenant=reader.tenant,
        session=number,
        epoch=epoch,
        role=role,
        own=own,
        left_out=turn.number if turn else None,
        from_seq=turn.seq if turn else None,
        until=until,
    )
    answer, complete = Found(), True
    for mode in modes(query):
        answer = _Reading(connection, query, mode, scope).page(limit, offset)
        if answer.total:
            return answer
        complete = complete and answer.complete
    return answer.model_copy(update={"complete": complete})


class _Reading:
    """One query, looked for in one way."""

    def __init__(self, connection: Connection, query: Query, mode: Mode, scope: Scope) -> None:
        self._index = index_of(connection)
        self._query = query
        self._mode = mode
        self._scope = scope
        tenant = scope.tenant
        if tenant is not None and not self._index.is_small(tenant):
            tenant = None
        self._match = self._index.translated(query, mode, scope.session, tenant)

    def page(self, limit: int, offset: int) -> Found:
        """The hits of a page, how many there are in all, and whether that is certain."""
        found = self._index.documents(self._match, self._scope, COUNTED)
        few = found if len(found) <= COUNTED else None
        if self._match.is_exact:
            pool, older, total, complete = self._exact(few, limit, offset)
        else:
            pool, older, total, complete = self._verified(few, limit, offset)
        best = self._ranked(pool)[offset : offset + limit] if offset < len(pool) else []
        chosen = [*best, *((row, 0.0) for row in older)]
        return Found(
            hits=tuple(self._hit(row, score) for row, score in chosen[:limit]),
            total=total,
            complete=complete,
            lane=self._lane,
        )

    @property
    def _lane(self) -> Lane:
        if self._mode is Mode.WORDS:
            return Lane.FTS
        return Lane.SCAN if self._match.scans else Lane.TRIGRAM

    def _exact(
        self, few: list[int] | None, limit: int, offset: int
    ) -> tuple[_Rows, _Rows, int, bool]:
        """What the engine says is so, and need not be read to be counted."""
        pool = list(self._newest(few, RANKED))
        older: _Rows = []
        if offset + limit > RANKED:
            first = max(offset, RANKED)
            older = list(self._newest(few, offset + limit - first, first))
        if few is not None:
            return pool, older, len(few), True
        return pool, older, max(COUNTED, offset + len(older) if older else 0), False

    def _verified(
        self, few: list[int] | None, limit: int, offset: int
    ) -> tuple[_Rows, _Rows, int, bool]:
        """Of what the engine says, that which is so."""
        pool: _Rows = []
        older: _Rows = []
        total = examined = 0
        most = SCANNED if self._lane is Lane.SCAN else EXAMINED
        for row in self._newest(few, most + 1):
            examined += 1
            if examined > most:
                return pool, older, total, False
            if not matches(self._query, row.text, self._mode):
                continue
            if total >= max(VERIFIED, offset + limit):
                return pool, older, total, False
            if total < RANKED:
                pool.append(row)
            elif offset <= total < offset + limit:
                older.append(row)
            total += 1
        return pool, older, total, True

    def _newest(self, few: list[int] | None, limit: int, offset: int = 0) -> Iterator[Candidate]:
        """Messages that the engine takes for matches, newest first, read as they are taken."""
        if few is not None:
            return self._index.messages_of(few[offset : offset + limit])
        return self._index.newest(self._match, self._scope, limit=limit, offset=offset)

    def _ranked(self, pool: _Rows) -> list[tuple[Candidate, float]]:
        folded = [fold(row.text[:_SCORED]) for row in pool]
        scored = zip(pool, scores(self._query, folded, self._mode), strict=True)
        # Sorting is stable: of equals the newer comes first.
        return sorted(scored, key=lambda one: one[1], reverse=True)

    def _hit(self, row: Candidate, score: float) -> MessageHit:
        return MessageHit(
            session_key=row.session_key,
            message_id=row.id,
            seq=row.seq,
            role=row.role,
            snippet=snippet(self._query, row.text, self._mode),
            score=round(score, 4),
            label=row.label,
            at=row.at,
        )
