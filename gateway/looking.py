"""Looking at sessions from outside: figures, lists, transcripts, search.

Invariant: whoever asks finds the sessions that their sight has, and reads no words above its level.
"""

from __future__ import annotations

from gateway.sight import Sight, no_session
from perdure.config import Settings
from perdure.domain.errors import InvalidArgument
from perdure.domain.keys import SessionKey
from perdure.domain.messages import Role
from perdure.search import LONGEST_QUERY, Query, parse
from perdure.shapes import SessionList, SessionStatus, readable, status_of, summary_of
from perdure.store import Store
from perdure.store.marks import Mark
from perdure.store.search import Found
from perdure.store.session_views import SessionFilter
from perdure.store.transcript import HistoryPage

#: The most messages of one page, of a transcript or of what was found.
LARGEST_PAGE = 200


class Looking:
    """What a `SessionClient` answers from the store alone."""

    def __init__(self, settings: Settings, store: Store, sight: Sight) -> None:
        self._settings = settings
        self._store = store
        self._reader = sight.reader

    async def status(self, session_key: str) -> SessionStatus:
        """See `SessionClient.status`."""
        SessionKey.parse(session_key)
        figures = await self._store.views.figures(self._reader, session_key)
        if figures is None:
            raise no_session(session_key)
        return status_of(figures, self._settings)

    async def sessions(
        self, asked: SessionFilter, limit: int, offset: int, mark: Mark | None
    ) -> SessionList:
        """See `SessionClient.sessions`."""
        rows, total = await self._store.views.list(
            self._reader, asked, limit=limit, offset=offset, mark=mark
        )
        return SessionList(sessions=tuple(map(summary_of, rows)), total=total)

    async def history(
        self, session_key: str, limit: int, offset: int, before: int | None
    ) -> HistoryPage:
        """See `SessionClient.history`."""
        _check(limit, offset)
        SessionKey.parse(session_key)
        page = await self._store.views.history(
            self._reader, session_key, limit=limit, offset=offset, before=before
        )
        if page is None:
            raise no_session(session_key)
        return readable(page, self._reader.level)

    async def search(
        self,
        query: str,
        session_key: str | None,
        role: Role | None,
        limit: int,
        offset: int,
        until: int | None,
    ) -> Found:
        """See `SessionClient.search`."""
        _check(limit, offset)
        parsed = question(query)
        reader = self._reader
        if session_key is not None:
            await self.status(session_key)
            # It is there, whatever its label; of its messages the level alone decides.
            reader = reader.model_copy(update={"own": session_key})
        return await self._store.search.messages(
            parsed,
            reader,
            session_key=session_key,
            role=role,
            limit=limit,
            offset=offset,
            until=until,
        )


def question(query: str) -> Query:
    """What is searched for.

    Raises:
        InvalidArgument: for a query that asks nothing, or is too long.
    """
    if len(query) > LONGEST_QUERY:
        raise InvalidArgument(
            f"The query has {len(query):,} characters; the limit is {LONGEST_QUERY:,}.",
            "Search for some of its words.",
        )
    parsed = parse(query)
    if parsed.is_empty:
        raise InvalidArgument("The query asks nothing.", "Give words to search for.")
    return parsed


def _check(limit: int, offset: int) -> None:
    if not 1 <= limit <= LARGEST_PAGE or offset < 0:
        raise InvalidArgument(
            f"limit {limit}, offset {offset} are out of range.",
            f"limit is 1 to {LARGEST_PAGE}, offset 0 or more.",
        )
