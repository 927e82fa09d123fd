"""Sessions as others see them: lists, figures and transcripts, for a reader.

Invariant: a session that is hidden from the reader and one that is not there are found the same
way and come to the same nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Connection, func, select

from perdure.domain.keys import Kind
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen
from perdure.domain.runs import RunState
from perdure.domain.states import SessionState
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.delegation_tables import runs
from perdure.store.marks import Mark, after
from perdure.store.readers import Reader, seen_by, up_to
from perdure.store.sessions import SessionRow, session_of
from perdure.store.tables import mailbox, sessions
from perdure.store.transcript import HistoryPage, page_of


class SessionFilter(Frozen):
    """Which sessions are asked for; None is all."""

    kind: Kind | None = None
    since: datetime | None = None
    state: SessionState | None = None
    agent: str | None = None
    label: Label | None = None

    @classmethod
    def of(
        cls,
        *,
        kind: Kind | None = None,
        since_minutes: float | None = None,
        state: SessionState | None = None,
        agent: str | None = None,
        label: Label | None = None,
    ) -> SessionFilter:
        """A filter with the time of `since_minutes` ago."""
        since = None if since_minutes is None else now() - timedelta(minutes=since_minutes)
        return cls(kind=kind, since=since, state=state, agent=agent, label=label)


class SessionFigures(Frozen):
    """A session, how many messages wait for it, and how many of its runs are not over."""

    row: SessionRow
    pending: int
    children: int


class SessionViews:
    """Looks at sessions, and changes nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self,
        reader: Reader,
        asked: SessionFilter,
        *,
        limit: int = 100,
        offset: int = 0,
        mark: Mark | None = None,
    ) -> tuple[list[SessionRow], int]:
        """A page of the sessions asked for, last active first, and how many there are in all.
        With a mark, it begins after the session of that time and key."""
        return await self._database.read(_list, reader, asked, limit, offset, mark)

    async def figures(self, reader: Reader, session_key: str) -> SessionFigures | None:
        """A session in figures, or None when there is none for the reader."""
        return await self._database.read(_figures, reader, session_key)

    async def row(self, reader: Reader, session_key: str) -> SessionRow | None:
        """A session, or None when there is none for the reader."""
        return await self._database.read(_row, reader, session_key)

    async def history(
        self,
        reader: Reader,
        session_key: str,
        *,
        limit: int,
        offset: int = 0,
        before: int | None = None,
    ) -> HistoryPage | None:
        """A page of a transcript, as `Transcript.page` has it, or None when there is no such
        session for the reader. Its messages may be above the reader's level."""
        return await self._database.read(_history, reader, session_key, limit, offset, before)


def _list(
    connection: Connection,
    reader: Reader,
    asked: SessionFilter,
    limit: int,
    offset: int,
    mark: Mark | None,
) -> tuple[list[SessionRow], int]:
    conditions: list[ColumnElement[bool]] = [seen_by(reader)]
    conditions += [
        sessions.c[name] == value for name, value in asked if value is not None and name != "since"
    ]
    if asked.since is not None:
        conditions.append(sessions.c.last_activity >= asked.since)
    query = (
        select(sessions)
        .where(*conditions)
        .order_by(sessions.c.last_activity.desc(), sessions.c.session_key)
        .limit(limit)
        .offset(offset)
    )
    if mark is not None:
        query = query.where(after(mark, sessions.c.last_activity, sessions.c.session_key))
    total = connection.scalar(select(func.count()).select_from(sessions).where(*conditions))
    return [session_of(row) for row in connection.execute(query)], int(total or 0)


def _row(connection: Connection, reader: Reader, session_key: str) -> SessionRow | None:
    seen = select(sessions).where(sessions.c.session_key == session_key, seen_by(reader))
    row = connection.execute(seen).one_or_none()
    return None if row is None else session_of(row)


def _figures(connection: Connection, reader: Reader, session_key: str) -> SessionFigures | None:
    waiting = (
        select(func.count())
        .select_from(mailbox)
        .where(mailbox.c.session_key == session_key)
        .scalar_subquery()
    )
    child = sessions.alias("child")
    # A run that the reader may not see is not counted either.
    under_way = (
        select(func.count())
        .select_from(runs)
        .join(child, child.c.session_key == runs.c.session_key)
        .where(runs.c.parent_key == session_key, runs.c.state != RunState.ENDED)
        .where(child.c.label.in_(up_to(reader.sees)))
        .scalar_subquery()
    )
    row = connection.execute(
        select(sessions, waiting.label("pending"), under_way.label("children")).where(
            sessions.c.session_key == session_key, seen_by(reader)
        )
    ).one_or_none()
    if row is None:
        return None
    return SessionFigures(row=session_of(row), pending=row.pending, children=row.children)


def _history(
    connection: Connection,
    reader: Reader,
    session_key: str,
    limit: int,
    offset: int,
    before: int | None,
) -> HistoryPage | None:
    there = select(sessions.c.session_key).where(
        sessions.c.session_key == session_key, seen_by(reader)
    )
    if connection.scalar(there) is None:
        return None
    return page_of(connection, session_key, limit, offset, before)
