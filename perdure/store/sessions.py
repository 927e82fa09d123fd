"""Sessions as rows: opened, listed, looked at, reset, closed.

Invariant: a session's agent is fixed when it is first opened, and its turn number never falls.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from perdure.domain.envelopes import Envelope
from perdure.domain.keys import Kind, Marker, SessionKey
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen, Usage
from perdure.domain.states import EventKind, SessionState
from perdure.domain.steps import OpenSession, SessionReset
from perdure.store import mailbox, outbox
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.dialect import insert_or_ignore
from perdure.store.tables import events, sessions
from perdure.store.turns import close_orphans


class SessionRow(Frozen):
    """What the store knows of a session."""

    session_key: str
    agent: str
    kind: Kind
    channel: str | None
    user: str
    state: SessionState
    label: Label
    turn: int
    message_count: int
    step_count: int
    usage: Usage
    created_at: datetime
    last_activity: datetime


class Opened(Frozen):
    """A session as its workflow finds it: agent, last turn, label, and what waits for it."""

    agent: str
    turn: int
    label: Label
    pending: tuple[Envelope, ...] = ()


class Sessions:
    """The sessions table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(self, request: OpenSession) -> Opened:
        """The session, made if it is new. A fresh run also picks up what a lost one left: turns
        it did not end are ended as failed, messages it had not taken are handed over again."""
        key = SessionKey.parse(request.session_key)
        async with self._database.write() as connection:
            made = await connection.execute(
                insert_or_ignore(sessions).values(
                    session_key=request.session_key,
                    tenant=key.tenant,
                    user=key.user,
                    kind=key.kind,
                    agent=request.agent,
                    state=SessionState.IDLE,
                    label=Label.PUBLIC,
                    created_at=now(),
                    last_activity=now(),
                )
            )
            if request.fresh:
                await close_orphans(connection, request.session_key)
            row = await _row(connection, request.session_key)
            assert row is not None  # inserted above
            if made.rowcount or row.state == SessionState.CLOSED:
                await connection.execute(
                    update(sessions)
                    .where(sessions.c.session_key == request.session_key)
                    .values(state=SessionState.IDLE)
                )
                await outbox.append(
                    connection,
                    request.session_key,
                    EventKind.SESSION_OPENED,
                    agent=row.agent,
                    reopened=not made.rowcount,
                )
            pending = (
                await mailbox.waiting(connection, request.session_key) if request.fresh else ()
            )
        return Opened(agent=row.agent, turn=row.turn, label=row.label, pending=pending)

    async def reset(self, request: SessionReset) -> None:
        """Begin a new epoch at PUBLIC and discard the messages named, once per request."""
        async with self._database.write() as connection:
            done = await connection.scalar(
                select(func.count()).where(
                    events.c.session_key == request.session_key,
                    events.c.kind == EventKind.SESSION_RESET,
                    events.c.payload["request_id"].as_string() == request.request_id,
                )
            )
            if done:
                return
            await connection.execute(
                update(sessions)
                .where(sessions.c.session_key == request.session_key)
                .values(epoch=sessions.c.epoch + 1, label=Label.PUBLIC, last_activity=now())
            )
            epoch = await connection.scalar(
                select(sessions.c.epoch).where(sessions.c.session_key == request.session_key)
            )
            for message_id in request.dropped:
                await connection.execute(
                    delete(mailbox.mailbox).where(
                        mailbox.mailbox.c.session_key == request.session_key,
                        mailbox.mailbox.c.message_id == message_id,
                    )
                )
                await outbox.append(
                    connection,
                    request.session_key,
                    EventKind.MESSAGE_DROPPED,
                    message_id=message_id,
                    reason="reset",
                )
            await outbox.append(
                connection,
                request.session_key,
                EventKind.SESSION_RESET,
                request_id=request.request_id,
                epoch=epoch,
                dropped=len(request.dropped),
            )

    async def close(self, session_key: str) -> None:
        """Mark a session closed."""
        async with self._database.write() as connection:
            changed = await connection.execute(
                update(sessions)
                .where(
                    sessions.c.session_key == session_key,
                    sessions.c.state != SessionState.CLOSED,
                )
                .values(state=SessionState.CLOSED, last_activity=now())
            )
            if changed.rowcount:
                await outbox.append(connection, session_key, EventKind.SESSION_CLOSED)

    async def get(self, session_key: str) -> SessionRow | None:
        """A session, or None when there is none of that key."""
        async with self._database.read() as connection:
            row = await _row(connection, session_key)
        return None if row is None else _session(row)

    async def list(
        self,
        *,
        kind: Kind | None = None,
        since_minutes: float | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> tuple[list[SessionRow], int]:
        """A page of sessions, last active first, and how many there are in all."""
        conditions = []
        if kind is not None:
            conditions.append(sessions.c.kind == kind)
        if since_minutes is not None:
            conditions.append(sessions.c.last_activity >= now() - timedelta(minutes=since_minutes))
        query = (
            select(sessions)
            .where(*conditions)
            .order_by(sessions.c.last_activity.desc(), sessions.c.session_key)
            .limit(limit)
            .offset(offset)
        )
        async with self._database.read() as connection:
            rows = (await connection.execute(query)).all()
            total = await connection.scalar(
                select(func.count()).select_from(sessions).where(*conditions)
            )
        return [_session(row) for row in rows], int(total or 0)


async def _row(connection: AsyncConnection, session_key: str) -> Row[Any] | None:
    return (
        await connection.execute(select(sessions).where(sessions.c.session_key == session_key))
    ).one_or_none()


def _session(row: Row[Any]) -> SessionRow:
    return SessionRow(
        session_key=row.session_key,
        agent=row.agent,
        kind=row.kind,
        channel=SessionKey.parse(row.session_key).get(Marker.CHANNEL),
        user=row.user,
        state=row.state,
        label=row.label,
        turn=row.turn,
        message_count=row.message_count,
        step_count=row.step_count,
        usage=Usage(input_tokens=row.input_tokens, output_tokens=row.output_tokens, cost=row.cost),
        created_at=row.created_at,
        last_activity=row.last_activity,
    )
