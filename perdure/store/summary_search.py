"""Finding the summaries of a session's context by what they say.

Invariant: everything of the epoch is searched, up to the level. An answer that could not be worked
out to its end says so: `complete` is False.
"""

from __future__ import annotations

from contextlib import closing
from datetime import datetime

from sqlalchemy import Connection

from perdure.domain.labels import Label
from perdure.domain.messages import Frozen
from perdure.search import Mode, Query, matches_folded, modes, scores, snippet
from perdure.store.dialect import index_of
from perdure.store.nodes import named
from perdure.store.search import NUMBER, Lane
from perdure.store.search_translation import Match

#: The matches made last, this many, are ranked among each other; there is no second page.
RANKED = 60
#: Candidates that are verified for one answer, at about 20 µs each: they are long.
EXAMINED = 1_000
#: Of a long text this much is scored.
_SCORED = 20_000


class SummaryHit(Frozen):
    """A summary that was found."""

    id: str
    snippet: str
    label: Label
    latest_at: datetime


class FoundSummaries(Frozen):
    """What was found, best first, and how."""

    hits: tuple[SummaryHit, ...] = ()
    lane: Lane = Lane.FTS
    complete: bool = True


def search_summaries(
    connection: Connection,
    query: Query,
    *,
    session_key: str,
    epoch: int,
    level: Label,
    limit: int,
    indexed: bool = True,
) -> FoundSummaries:
    """The summaries that match: words are looked for first, then parts of words.

    With `indexed` False all of them are read, those made last first: the indexes are damaged.
    """
    number = connection.scalar(NUMBER, {"key": session_key})
    if number is None:
        return FoundSummaries()
    index = index_of(connection)
    complete = True
    for mode in modes(query):
        match = Match(None)
        if indexed:
            match = index.translated_for_summaries(query, mode, number)
        pool: list[tuple[str, str]] = []
        examined = 0
        place = {"session": number, "epoch": epoch, "level": level.rank}
        with closing(index.summaries(match, **place, limit=EXAMINED + 1)) as rows:
            for row in rows:
                examined += 1
                if match.is_exact or matches_folded(query, row.folded, mode):
                    pool.append((row.summary_id, row.folded[:_SCORED]))
                if len(pool) == RANKED or examined > EXAMINED:
                    break
        complete = complete and examined <= EXAMINED
        if pool:
            return FoundSummaries(
                hits=tuple(
                    SummaryHit(
                        id=summary.id,
                        snippet=snippet(query, summary.text, mode),
                        label=summary.label,
                        latest_at=summary.latest_at,
                    )
                    for summary in named(connection, session_key, _best(query, mode, pool)[:limit])
                ),
                lane=_lane(mode, match),
                complete=complete,
            )
    return FoundSummaries(complete=complete)


def _best(query: Query, mode: Mode, pool: list[tuple[str, str]]) -> list[str]:
    """The ids, best first."""
    scored = zip(pool, scores(query, [folded for _, folded in pool], mode), strict=True)
    # Sorting is stable: of equals the one made last comes first.
    return [name for (name, _), _ in sorted(scored, key=lambda one: one[1], reverse=True)]


def _lane(mode: Mode, match: Match) -> Lane:
    if match.upper is None:
        return Lane.SCAN
    return Lane.FTS if mode is Mode.WORDS else Lane.TRIGRAM
