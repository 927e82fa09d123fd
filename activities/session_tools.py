"""What stands behind the tools that look at sessions: list, status, history, search.

Invariant: the reader is the session that calls, at its live label. What is above it is not there:
a hidden session and an unknown one are the same answer.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from activities.asking import Asker
from activities.hit_summaries import HitSummaries
from activities.roster import Roster
from activities.standing import Done
from perdure.config import Settings
from perdure.domain.errors import NotFound
from perdure.domain.keys import Kind
from perdure.domain.labels import join
from perdure.domain.messages import Frozen, Role
from perdure.domain.steps import ToolRequest
from perdure.guard import Guard
from perdure.search import parse
from perdure.shapes import SessionList, SessionSummary, readable, status_of, summary_of
from perdure.store import Store
from perdure.store.readers import Reader
from perdure.store.search import Lane
from perdure.store.session_views import SessionFilter
from perdure.tools.sessions import SessionSearch, SessionsHistory, SessionsList, SessionStatus

#: Sessions of one `sessions_list`.
LISTED = 100

Asked = SessionStatus | SessionsList | SessionsHistory | SessionSearch


class SearchResult(Frozen):
    """A message that was found; `summary` is of the best ones, where it was asked for."""

    session_key: str
    message_id: str
    role: Role
    snippet: str
    score: float
    at: datetime
    summary: str | None


class SearchResults(Frozen):
    """The result of `session_search` with a query: best first. Unless `complete`, there are
    `total` at least. `failed_summaries` of the best results have none, for want of a model."""

    mode: Literal["search"] = "search"
    results: tuple[SearchResult, ...]
    total: int
    complete: bool
    lane: Lane
    failed_summaries: int


class RecentSessions(Frozen):
    """The result of `session_search` without a query: the sessions that were active last."""

    mode: Literal["recent"] = "recent"
    sessions: tuple[SessionSummary, ...]
    total: int


class SessionTools:
    """Runs them for the session of a request."""

    def __init__(self, settings: Settings, store: Store, roster: Roster, guard: Guard) -> None:
        self._settings = settings
        self._store = store
        self._roster = roster
        self._summaries = HitSummaries(store, Asker(store, guard))

    async def do(self, request: ToolRequest, asked: Asked) -> Done:
        """The result of a call, at the highest label of what it tells.

        Raises:
            NotFound: when there is no such session for the caller.
        """
        reader = Reader.session(request.session_key, request.label)
        match asked:
            case SessionStatus():
                return await self._status(reader, asked.session_key or request.session_key)
            case SessionsList():
                kind = None if asked.kind == "all" else Kind(asked.kind)
                asked_for = SessionFilter.of(kind=kind, since_minutes=asked.since_minutes)
                return await self._list(reader, asked_for)
            case SessionsHistory():
                return await self._history(reader, asked)
            case SessionSearch():
                return await self._search(reader, request, asked)

    async def _status(self, reader: Reader, session_key: str) -> Done:
        figures = await self._store.views.figures(reader, session_key)
        if figures is None:
            raise _not_there()
        return Done(status_of(figures, self._settings), figures.row.label)

    async def _list(self, reader: Reader, asked: SessionFilter) -> Done:
        rows, total = await self._store.views.list(reader, asked, limit=LISTED)
        listed = SessionList(sessions=tuple(map(summary_of, rows)), total=total)
        return Done(listed, join(*(row.label for row in rows)))

    async def _history(self, reader: Reader, asked: SessionsHistory) -> Done:
        page = await self._store.views.history(
            reader, asked.session_key, limit=asked.limit, offset=asked.offset
        )
        if page is None:
            raise _not_there()
        shown = readable(page, reader.level)
        told = (
            message.label
            for message, read in zip(page.messages, shown.messages, strict=True)
            if read is message
        )
        return Done(shown, join(*told))

    async def _search(self, reader: Reader, request: ToolRequest, asked: SessionSearch) -> Done:
        query = parse(asked.query or "")
        if query.is_empty:
            rows, total = await self._store.views.list(reader, SessionFilter(), limit=asked.limit)
            recent = RecentSessions(sessions=tuple(map(summary_of, rows)), total=total)
            return Done(recent, join(*(row.label for row in rows)))
        role = None if asked.scope == "all" else Role(asked.scope)
        found = await self._store.search.messages(
            query,
            reader,
            role=role,
            # The turn under way would find itself first: it has the words of the query.
            without=(request.session_key, request.turn),
            limit=asked.limit,
        )
        summaries: dict[tuple[str, str], str] = {}
        failed = 0
        if asked.summarize:
            member = await self._roster.of(request.session_key, request.agent)
            summarised = await self._summaries.of(
                request, member.agent.models, query.text, found.hits
            )
            summaries, failed = summarised.summaries, summarised.failed
        results = tuple(
            SearchResult(
                **hit.model_dump(include=set(SearchResult.model_fields)),
                summary=summaries.get((hit.session_key, hit.message_id)),
            )
            for hit in found.hits
        )
        answer = SearchResults(
            results=results,
            total=found.total,
            complete=found.complete,
            lane=found.lane,
            failed_summaries=failed,
        )
        return Done(answer, join(*(hit.label for hit in found.hits)))


def _not_there() -> NotFound:
    """One answer for what is hidden and for what is not there."""
    return NotFound("There is no such session.", "sessions_list tells which there are.")
