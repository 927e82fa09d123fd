"""Full-text search on PostgreSQL: what `tsvector` indexes, and queries as `tsquery`.

`search_words` keeps the tokens of each document and where they stand. A part of a word is found by
the words that hold it: pg_trgm finds those in the vocabulary. Summaries, which are few in a
session, are read for it.

Invariant: whatever writes a message or a summary through the store, its document is written in the
same transaction, by `keep`: what triggers are on SQLite. A `tsvector` counts only so many places;
what has more of them is found by its words wherever they stand, and verified.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from sqlalchemy import ARRAY, BigInteger, BindParameter, Connection, Row, Text, bindparam, text
from sqlalchemy.sql.dml import Insert

from perdure.domain.keys import SessionKey
from perdure.domain.labels import Label
from perdure.search import Mode, Query
from perdure.store.context_tables import summaries
from perdure.store.plain_text import storable
from perdure.store.search_index import Candidate, Scope
from perdure.store.search_tokens import (
    EVERYTHING,
    OURS,
    flat,
    parted_words,
    session_token,
    tenant_token,
    word_tokens,
)
from perdure.store.search_translation import Match, translated, translated_parts
from perdure.store.tables import messages

#: Words that one part of a word may stand for.
MOST_WORDS = 5_000
#: PostgreSQL's limits: the last place that is counted, places of one token, bytes of a `tsvector`
#: (of which some are the server's own). A text with more bytes of different words than that is
#: found by the first of them.
_LAST_PLACE = 16_383
_PLACES = 255
_BYTES = 1_000_000
#: The token of a document in which not every token's place is known.
_UNPLACED = f"{OURS}u"


class Tsquery:
    """The language of `tsquery`."""

    def phrase(self, tokens: Sequence[str], *, begins: bool = False) -> str:
        quoted = [_quoted(token) for token in tokens]
        if begins:
            quoted[-1] += ":*"
        if len(quoted) == 1:
            return quoted[0]
        anywhere = self.all_of([_quoted(_UNPLACED), *quoted])
        return self.any_of([f"({' <-> '.join(quoted)})", anywhere])

    def all_of(self, parts: Sequence[str]) -> str:
        return f"({' & '.join(parts)})"

    def any_of(self, parts: Sequence[str]) -> str:
        return f"({' | '.join(parts)})"

    def without(self, those: str, excluded: str) -> str:
        return f"({those} & !{excluded})"


class Holding:
    """Conditions of SQL on the column `d.folded`."""

    def containing(self, text: str) -> str:
        # Written in hexadecimal, a text can say nothing else whatever the server's settings.
        return f"strpos(d.folded, convert_from(decode('{text.encode().hex()}', 'hex'), 'UTF8')) > 0"

    def all_of(self, parts: Sequence[str]) -> str:
        return f"({' AND '.join(parts)})"

    def any_of(self, parts: Sequence[str]) -> str:
        return f"({' OR '.join(parts)})"

    def without(self, those: str, excluded: str) -> str:
        return f"({those} AND NOT {excluded})"


_TSQUERY, _HOLDING_TEXT = Tsquery(), Holding()


def _quoted(token: str) -> str:
    return "'" + token.replace("\\", "\\\\").replace("'", "''") + "'"


def _vector(tokens: Sequence[str]) -> str:
    """The tokens and their places as a `tsvector` is written."""
    places: dict[str, list[int]] = {}
    for place, token in enumerate(tokens, 1):
        places.setdefault(token, []).append(place)
    if len(tokens) > _LAST_PLACE or any(len(found) > _PLACES for found in places.values()):
        places[_UNPLACED] = []
    written, room = [], _BYTES
    # Ours come last, and in any case.
    for token, found in sorted(places.items(), key=lambda one: one[0][0] != OURS):
        counted = list(islice((place for place in found if place <= _LAST_PLACE), _PLACES))
        room -= len(token.encode()) + 4 + 2 * len(counted)
        if room < 0:
            break
        written.append(_quoted(token) + f":{','.join(map(str, counted))}" * bool(counted))
    return " ".join(written)


# What is kept -----------------------------------------------------------------------------------

#: The number of a session is known to the database alone.
_OF_SESSION = f"' ''{session_token(0)[:-1]}' || d.session || ''''"
_ADD_MESSAGE = text(
    f"""
    WITH d AS (
      INSERT INTO search_documents (session, seq, epoch, role, level)
      SELECT number, :seq, :epoch, :role, :level FROM search_sessions WHERE session_key = :key
      RETURNING doc, session
    ), w AS (
      INSERT INTO search_words (doc, tokens)
      SELECT d.doc, CAST(CAST(:tokens AS TEXT) || {_OF_SESSION} AS TSVECTOR) FROM d
    )
    INSERT INTO search_vocabulary (word)
    SELECT said.word FROM unnest(:words) AS said(word)
    WHERE NOT EXISTS (SELECT 1 FROM search_vocabulary AS v WHERE v.word = said.word)
    ON CONFLICT DO NOTHING
    """
).bindparams(bindparam("words", type_=ARRAY(Text)))
_ADD_SUMMARY = text(
    f"""
    WITH d AS (
      INSERT INTO search_summary_documents (session, summary_id, epoch, level, folded)
      SELECT number, :id, :epoch, :level, :folded FROM search_sessions WHERE session_key = :key
      RETURNING doc, session
    )
    INSERT INTO search_summary_words (doc, tokens)
    SELECT d.doc, CAST(CAST(:tokens AS TEXT) || {_OF_SESSION} AS TSVECTOR) FROM d
    """
)


def keep(
    connection: Connection,
    statement: object,
    _many: object,
    _one: object,
    _options: object,
    result: Any,
) -> None:
    """Index what a statement has written; SQLAlchemy calls it after each one."""
    if not isinstance(statement, Insert):
        return
    if statement.table is messages:
        said = [_message(row) for row in result.context.compiled_parameters if row["text"]]
        if said:
            connection.execute(_ADD_MESSAGE, said)
    elif statement.table is summaries:
        written = [_summary(row) for row in result.context.compiled_parameters]
        connection.execute(_ADD_SUMMARY, written)


def _message(row: dict[str, Any]) -> dict[str, Any]:
    said = storable(row["text"])
    return {
        **_document(row, said),
        "seq": row["seq"],
        "role": row["role"],
        "words": parted_words(said),
    }


def _summary(row: dict[str, Any]) -> dict[str, Any]:
    said = storable(row["text"])
    return {**_document(row, said), "id": row["id"], "folded": flat(said)}


def _document(row: dict[str, Any], said: str) -> dict[str, Any]:
    key = row["session_key"]
    tokens = [*word_tokens(said), EVERYTHING, tenant_token(SessionKey.parse(key).tenant)]
    return {
        "key": key,
        "epoch": row["epoch"],
        "level": Label(row["label"]).rank,
        "tokens": _vector(tokens),
    }


# What is found ----------------------------------------------------------------------------------

_READ = [messages.c[name] for name in ("session_key", "seq", "id", "role", "text", "label", "at")]
_COLUMNS = ", ".join(f"m.{column.name}" for column in _READ)
_SCOPE: list[BindParameter[Any]] = [
    *(
        bindparam(name, type_=BigInteger)
        for name in (
            *("level", "sees", "session", "epoch", "own"),
            *("left_out", "from_seq", "until", "limit"),
        )
    ),
    *(bindparam(name, type_=Text) for name in ("tenant", "role", "match")),
]
_FOUND = """
    SELECT d.doc, s.session_key, d.seq
    FROM search_words AS w JOIN search_documents AS d ON d.doc = w.doc
    JOIN search_sessions AS s ON s.number = d.session
    WHERE w.tokens @@ CAST(:match AS TSQUERY)
      AND d.level <= :level AND (s.level <= :sees OR d.session = :own)
      AND (CAST(:tenant AS TEXT) IS NULL OR s.tenant = :tenant)
      AND (CAST(:session AS BIGINT) IS NULL OR d.session = :session)
      AND (CAST(:epoch AS BIGINT) IS NULL OR d.epoch = :epoch)
      AND (CAST(:role AS TEXT) IS NULL OR d.role = :role)
      AND (CAST(:left_out AS BIGINT) IS NULL OR d.session <> :left_out OR d.seq < :from_seq)
      AND (CAST(:until AS BIGINT) IS NULL OR d.doc <= :until)
    ORDER BY w.doc DESC LIMIT :limit
"""
_DOCUMENTS = text(_FOUND).bindparams(*_SCOPE)
# Which documents they are is known first: joined at once, the planner would sort all messages.
_NEWEST = (
    text(
        f"SELECT {_COLUMNS} FROM ({_FOUND} OFFSET :offset) AS d JOIN messages AS m "
        "ON m.session_key = d.session_key AND m.seq = d.seq ORDER BY d.doc DESC"
    )
    .bindparams(*_SCOPE)
    .columns(*_READ)
)
_OF_DOCUMENTS = (
    text(
        f"SELECT {_COLUMNS} FROM unnest(:documents) WITH ORDINALITY AS one(doc, place) "
        "JOIN search_documents AS d ON d.doc = one.doc "
        "JOIN search_sessions AS s ON s.number = d.session JOIN messages AS m "
        "ON m.session_key = s.session_key AND m.seq = d.seq ORDER BY one.place"
    )
    .bindparams(bindparam("documents", type_=ARRAY(BigInteger)))
    .columns(*_READ)
)
# How many sessions there are in all, the highest number tells well enough.
_SMALL = text(
    "SELECT 8 * (SELECT count(*) FROM (SELECT 1 FROM search_sessions WHERE tenant = :tenant "
    "LIMIT 1000) AS own) < (SELECT coalesce(max(number), 0) FROM search_sessions)"
)
_HOLDING = text("SELECT word FROM search_vocabulary WHERE word LIKE :part LIMIT :limit")
_SUMMARIES = """
    SELECT d.summary_id, d.folded FROM search_summary_documents AS d {indexed}
    WHERE d.session = $1 AND d.epoch = $2 AND d.level <= $3 {where}
    ORDER BY d.doc DESC LIMIT $4
"""
#: Rows that are fetched at a time where not all may be needed.
_FETCHED = 200


class TsvectorIndex:
    """See `perdure.store.search_index.SearchIndex`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def is_small(self, tenant: str) -> bool:
        return bool(self._connection.execute(_SMALL, {"tenant": tenant}).scalar_one())

    def translated(
        self, query: Query, mode: Mode, session: int | None = None, tenant: str | None = None
    ) -> Match:
        return translated(
            query, mode, _TSQUERY, session=session, tenant=tenant, holding=self._holding
        )

    def documents(self, match: Match, scope: Scope, limit: int) -> list[int]:
        return list(self._connection.scalars(_DOCUMENTS, _values(match, scope, limit + 1)))

    def messages_of(self, found: Sequence[int]) -> Iterator[Candidate]:
        for place in range(0, len(found), _FETCHED):
            values = {"documents": list(found[place : place + _FETCHED])}
            yield from self._connection.execute(_OF_DOCUMENTS, values)

    def newest(
        self, match: Match, scope: Scope, *, limit: int, offset: int = 0
    ) -> Iterator[Candidate]:
        values = {**_values(match, scope, limit), "offset": offset}
        # A cursor takes further round trips.
        options = {"yield_per": _FETCHED} if limit > _FETCHED else {}
        with self._connection.execute(_NEWEST, values, execution_options=options) as rows:
            yield from rows

    def translated_for_summaries(self, query: Query, mode: Mode, session: int) -> Match:
        if mode is Mode.PARTS:
            return translated_parts(query, _HOLDING_TEXT)
        return translated(query, mode, _TSQUERY, session=session)

    def summaries(
        self, match: Match, *, session: int, epoch: int, level: int, limit: int
    ) -> Generator[Row[Any]]:
        indexed = where = ""
        values: tuple[Any, ...] = (session, epoch, level, limit)
        if match.upper is not None and match.parts:
            where = f"AND {match.upper}"
        elif match.upper is not None:
            indexed = "JOIN search_summary_words AS w ON w.doc = d.doc"
            where = "AND w.tokens @@ CAST($5::TEXT AS TSQUERY)"
            values += (match.upper,)
        statement = _SUMMARIES.format(indexed=indexed, where=where)
        with self._connection.exec_driver_sql(statement, values) as rows:
            yield from rows

    def _holding(self, part: str) -> list[str] | None:
        """The words that hold a part of at least `SHORTEST_PART` characters, or None when they are
        too many to be looked for one by one."""
        # It is a word: there is nothing in it that LIKE reads as anything else.
        values = {"part": f"%{part}%", "limit": MOST_WORDS + 1}
        found = list(self._connection.scalars(_HOLDING, values))
        return found if len(found) <= MOST_WORDS else None


def _values(match: Match, scope: Scope, limit: int) -> dict[str, Any]:
    return {**asdict(scope), "match": match.upper, "limit": limit}
