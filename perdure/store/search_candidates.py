"""The documents that an index finds, and their messages: the SQL around SQLite's FTS5.

Invariant: what the scope does not have is sorted out here, before it is counted, read or ranked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from sqlalchemy import Connection, Row, text

from perdure.store.search_fts5 import Match
from perdure.store.tables import messages

Candidate: TypeAlias = Row[Any]

#: Words that one part of a word may stand for.
MOST_WORDS = 5_000


@dataclass(frozen=True, slots=True)
class Scope:
    """Where is searched: words up to the rank `level`, in sessions up to the rank `sees` and in
    the reader's `own`; None is everywhere. Left out is what `left_out` said from `from_seq` on.
    Sessions are named by their numbers."""

    level: int
    sees: int
    tenant: str | None = None
    session: int | None = None
    epoch: int | None = None
    role: str | None = None
    own: int | None = None
    left_out: int | None = None
    from_seq: int | None = None


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


def is_small(connection: Connection, tenant: str) -> bool:
    """Whether a tenant has so few of all sessions that its documents are better picked out by the
    index than sorted out of what it finds."""
    return bool(connection.execute(_SMALL, {"tenant": tenant}).scalar_one())


def holding(connection: Connection, part: str) -> list[str] | None:
    """The words that hold a part of at least `SHORTEST_PART` characters, or None when they are
    too many to be looked for one by one."""
    values = {"part": f'"{part}"', "limit": MOST_WORDS + 1}
    found = list(connection.scalars(_HOLDING, values))
    return found if len(found) <= MOST_WORDS else None


def documents(connection: Connection, match: Match, scope: Scope, limit: int) -> list[int]:
    """The documents of `match.upper` that the scope has, newest first, if they are no more than
    `limit`; else the oldest `limit` of them and one more.

    FTS5 runs through rare matches about twice as fast from the oldest on.
    """
    return list(connection.scalars(_OLDEST, _values(match, scope, limit + 1)))[::-1]


def messages_of(connection: Connection, found: Sequence[int]) -> Iterator[Candidate]:
    """The messages of documents in their order, read as they are taken."""
    with connection.execute(_OF_DOCUMENTS, {"documents": json.dumps(found)}) as rows:
        yield from rows


def newest(
    connection: Connection, match: Match, scope: Scope, *, limit: int, offset: int = 0
) -> Iterator[Candidate]:
    """The messages of `match.upper` that the scope has, newest first, read as they are taken."""
    values = {**_values(match, scope, limit), "offset": offset}
    with connection.execute(_NEWEST, values) as rows:
        yield from rows


def _values(match: Match, scope: Scope, limit: int) -> dict[str, Any]:
    return {**asdict(scope), "match": match.upper, "limit": limit}
