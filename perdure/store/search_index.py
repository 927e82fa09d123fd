"""What full-text search asks of a database engine: see `dialect.index_of` for who answers.

Invariant: what the scope does not have is sorted out in the engine's query, before it is counted,
read or ranked; and every engine finds the same documents.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from sqlalchemy import Row

from perdure.search import Mode, Query
from perdure.store.search_translation import Match

#: Columns of `messages`: session_key, seq, id, role, text, label, at.
Candidate: TypeAlias = Row[Any]


@dataclass(frozen=True, slots=True)
class Scope:
    """Where is searched: words up to the rank `level`, in sessions up to the rank `sees` and in
    the reader's `own`; None is everywhere. Left out is what `left_out` said from `from_seq` on, and
    what was added behind the document `until`. Sessions are named by their numbers."""

    level: int
    sees: int
    tenant: str | None = None
    session: int | None = None
    epoch: int | None = None
    role: str | None = None
    own: int | None = None
    left_out: int | None = None
    from_seq: int | None = None
    until: int | None = None


class SearchIndex(Protocol):
    """The indexes of a database, over one connection."""

    def is_small(self, tenant: str) -> bool:
        """Whether a tenant has so few of all sessions that its documents are better picked out by
        the index than sorted out of what it finds."""

    def translated(
        self, query: Query, mode: Mode, session: int | None = None, tenant: str | None = None
    ) -> Match:
        """A query in the engine's language, narrowed to what may lie in a session or a tenant."""

    def documents(self, match: Match, scope: Scope, limit: int) -> list[int]:
        """The documents of `match.upper` that the scope has, newest first, if they are no more
        than `limit`; else `limit` of them and one more."""

    def messages_of(self, found: Sequence[int]) -> Iterator[Candidate]:
        """The messages of documents in their order, read as they are taken."""

    def newest(
        self, match: Match, scope: Scope, *, limit: int, offset: int = 0
    ) -> Iterator[Candidate]:
        """The messages of `match.upper` that the scope has, newest first, read as they are
        taken."""

    def translated_for_summaries(self, query: Query, mode: Mode, session: int) -> Match:
        """As `translated`, for the indexes of summaries: a part is looked for in their texts."""

    def summaries(
        self, match: Match, *, session: int, epoch: int, level: int, limit: int
    ) -> Generator[Row[Any]]:
        """`summary_id` and `folded` of those summaries of one session's epoch that `match.upper`
        finds, those made last first; read as they are taken."""
