"""Full-text search on SQLite: what FTS5 indexes, and queries in its language.

`search_words` keeps the tokens of each document. `search_parts` keeps the trigrams of each word
that was ever said, once: a part of a word is found by the words that hold it. Of summaries, which
are few, `search_summary_trigrams` keeps those of the texts.

Invariant: the indexes are kept by triggers, in the transaction of what they are about.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, text

from perdure.search import Mode, Query
from perdure.store.search_index import Candidate, Scope
from perdure.store.search_tables import search_summary_documents
from perdure.store.search_tokens import (
    EVERYTHING,
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


def register(connection: sqlite3.Connection) -> None:
    """Make known to a connection the functions that the indexes are kept with."""
    for function, arguments in ((search_tokens, 3), (search_parted, 1), (search_flat, 1)):
        connection.create_function(function.__name__, arguments, function, deterministic=True)
    # Migration 0002 fills an index with it that 0007 does away with.
    connection.create_function("search_folded", 1, lambda _: "", deterministic=True)


def search_tokens(text: str, session: int, tenant: str) -> str:
    """The tokens of a document of a session, which has this number, parted by spaces."""
    ours = (EVERYTHING, session_token(session), tenant_token(tenant))
    return " ".join([*word_tokens(text), *ours])


def search_parted(text: str) -> str:
    """The words of a text whose parts are to be found, as a JSON array."""
    return json.dumps(parted_words(text))


def search_flat(text: str) -> str:
    """The text of a summary as it is compared."""
    return flat(text)


class FTS5:
    """FTS5's language. Its tokenizer takes ASCII symbols for spaces, and everything beyond ASCII
    for letters; its trigrams are of any characters."""

    def phrase(self, tokens: Sequence[str], *, begins: bool = False) -> str:
        return f'"{" ".join(tokens)}"' + " *" * begins

    def containing(self, text: str) -> str:
        return '"{}"'.format(text.replace('"', '""'))

    def all_of(self, parts: Sequence[str]) -> str:
        return f"({' AND '.join(parts)})"

    def any_of(self, parts: Sequence[str]) -> str:
        return f"({' OR '.join(parts)})"

    def without(self, those: str, excluded: str) -> str:
        return f"({those} NOT {excluded})"


_FTS5 = FTS5()

_MESSAGES = "CROSS JOIN messages AS m ON m.session_key = s.session_key AND m.seq = d.seq"
_READ = [messages.c[name] for name in ("session_key", "seq", "id", "role", "text", "label", "at")]
_COLUMNS = ", ".join(f"m.{column.name}" for column in _READ)


# CROSS JOIN is SQLite's word for the order that is written: the index first.
_FOUND = """
    SELECT {columns} FROM search_words AS w CROSS JOIN search_documents AS d ON d.doc = w.rowid
    CROSS JOIN search_sessions AS s ON s.number = d.session
    {messages}
    WHERE search_words MATCH :match
      AND d.level <= :level AND (s.level <= :sees OR d.session = :own)
      AND (:tenant IS NULL OR s.tenant = :tenant)
      AND (:session IS NULL OR d.session = :session)
      AND (:epoch IS NULL OR d.epoch = :epoch)
      AND (:role IS NULL OR d.role = :role)
      AND (:left_out IS NULL OR d.session <> :left_out OR d.seq < :from_seq)
      AND (:until IS NULL OR d.doc <= :until)
    ORDER BY w.rowid {order} LIMIT :limit
"""

# Statements are built once: building them anew costs more than running them.
_OLDEST = text(_FOUND.format(columns="d.doc", messages="", order="ASC"))
_NEWEST = text(
    _FOUND.format(columns=_COLUMNS, messages=_MESSAGES, order="DESC") + " OFFSET :offset"
).columns(*_READ)
_OF_DOCUMENTS = text(
    f"SELECT {_COLUMNS} FROM json_each(:documents) AS one "
    "CROSS JOIN search_documents AS d ON d.doc = one.value "
    f"CROSS JOIN search_sessions AS s ON s.number = d.session {_MESSAGES}"
).columns(*_READ)
# How many sessions there are in all, the highest number tells well enough.
_SMALL = text(
    "SELECT 8 * (SELECT count(*) FROM (SELECT 1 FROM search_sessions WHERE tenant = :tenant "
    "LIMIT 1000)) < (SELECT coalesce(max(number), 0) FROM search_sessions)"
)

_HOLDING = text(
    "SELECT v.word FROM search_parts AS p CROSS JOIN search_vocabulary AS v ON v.number = p.rowid "
    "WHERE search_parts MATCH :part LIMIT :limit"
)

_NOTED = [search_summary_documents.c[name] for name in ("summary_id", "folded")]
_SUMMARIES = """
    SELECT d.summary_id, d.folded FROM {documents}
    WHERE {match} d.session = :session AND d.epoch = :epoch AND d.level <= :level
    ORDER BY {order} DESC LIMIT :limit
"""
_INDEXED = " AS w CROSS JOIN search_summary_documents AS d ON d.doc = w.rowid"
#: By `Match.parts`; every summary for None.
_FOUND_SUMMARIES = {
    parts: text(
        _SUMMARIES.format(
            documents=table + _INDEXED if table else "search_summary_documents AS d",
            match=f"{table} MATCH :match AND" if table else "",
            order="w.rowid" if table else "d.doc",
        )
    ).columns(*_NOTED)
    for parts, table in (
        (False, "search_summary_words"),
        (True, "search_summary_trigrams"),
        (None, None),
    )
}


class FTS5Index:
    """See `perdure.store.search_index.SearchIndex`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def is_small(self, tenant: str) -> bool:
        return bool(self._connection.execute(_SMALL, {"tenant": tenant}).scalar_one())

    def translated(
        self, query: Query, mode: Mode, session: int | None = None, tenant: str | None = None
    ) -> Match:
        return translated(query, mode, _FTS5, session=session, tenant=tenant, holding=self._holding)

    def documents(self, match: Match, scope: Scope, limit: int) -> list[int]:
        # FTS5 runs through rare matches about twice as fast from the oldest on.
        values = _values(match, scope, limit + 1)
        return list(self._connection.scalars(_OLDEST, values))[::-1]

    def messages_of(self, found: Sequence[int]) -> Iterator[Candidate]:
        with self._connection.execute(_OF_DOCUMENTS, {"documents": json.dumps(found)}) as rows:
            yield from rows

    def newest(
        self, match: Match, scope: Scope, *, limit: int, offset: int = 0
    ) -> Iterator[Candidate]:
        values = {**_values(match, scope, limit), "offset": offset}
        with self._connection.execute(_NEWEST, values) as rows:
            yield from rows

    def translated_for_summaries(self, query: Query, mode: Mode, session: int) -> Match:
        if mode is Mode.PARTS:
            return translated_parts(query, _FTS5)
        return translated(query, mode, _FTS5, session=session)

    def summaries(
        self, match: Match, *, session: int, epoch: int, level: int, limit: int
    ) -> Generator[Row[Any]]:
        values: dict[str, Any] = {"session": session, "epoch": epoch, "level": level}
        kind = None if match.upper is None else match.parts
        asked = values | {"limit": limit} | ({} if kind is None else {"match": match.upper})
        with self._connection.execute(_FOUND_SUMMARIES[kind], asked) as rows:
            yield from rows

    def _holding(self, part: str) -> list[str] | None:
        """The words that hold a part of at least `SHORTEST_PART` characters, or None when they are
        too many to be looked for one by one."""
        values = {"part": _FTS5.containing(part), "limit": MOST_WORDS + 1}
        found = list(self._connection.scalars(_HOLDING, values))
        return found if len(found) <= MOST_WORDS else None


def _values(match: Match, scope: Scope, limit: int) -> dict[str, Any]:
    return {**asdict(scope), "match": match.upper, "limit": limit}
