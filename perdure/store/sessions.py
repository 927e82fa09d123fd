"""Sessions as rows: opened, listed, looked at, reset, closed.

Invariant: a session's agent is fixed when it is first opened, and its turn number never falls.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from perdure.domain.envelopes import Envelope
from perdure.domain.keys import Kind, Marker, SessionKey
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen, Usage
from perdure.domain.states import EventKind, SessionState
from perdure.domain.steps import OpenSession, RunProfile, SessionReset
from perdure.store import mailbox
from perdure.store.arrivals import expects
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.kept_results import keep_what_waits
from perdure.store.run_profiles import has_runs, run_profile
from perdure.store.session_writer import SessionWriter
from perdure.store.tables import events, sessions
from perdure.store.turn_rows import close_orphans


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
    run: RunProfile | None = None
    runs: bool = False


class Sessions:
    """The sessions table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(self, request: OpenSession) -> Opened:
        """The session, made if it is new. A fresh run also picks up what a lost one left: turns
        it did not end are ended as failed, messages it had not taken are handed over again."""
        return await self._database.write(_open, request)

    async def reset(self, request: SessionReset) -> None:
        """Begin a new epoch at PUBLIC and discard the messages named, once per request."""
        await self._database.write(_reset, request)

    async def dropped_by(self, session_key: str, request_id: str) -> int | None:
        """How many messages a reset has discarded; None when it was not done."""
        return await self._database.read(_dropped_by, session_key, request_id)

    async def close(self, session_key: str) -> None:
        """Mark a session closed."""
        await self._database.write(_close, session_key)

    async def get(self, session_key: str) -> SessionRow | None:
        """A session, or None when there is none of that key."""
        return await self._database.read(_get, session_key)


def _open(connection: Connection, request: OpenSession) -> Opened:
    fresh = _row(connection, request.session_key) is None
    if fresh:
        make_session(connection, request.session_key, request.agent)
    with SessionWriter(connection, request.session_key) as session:
        if request.fresh:
            close_orphans(session)
        if session.row.state == SessionState.CLOSED:
            session.change(state=SessionState.IDLE)
            session.tell(EventKind.SESSION_OPENED, agent=session.row.agent, reopened=True)
        return Opened(
            agent=session.row.agent,
            turn=session.row.turn,
            label=session.row.label,
            pending=mailbox.waiting(connection, request.session_key) if request.fresh else (),
            run=run_profile(connection, request.session_key),
            runs=has_runs(connection, request.session_key)
            or expects(connection, request.session_key),
        )


def make_session(
    connection: Connection, session_key: str, agent: str, *, parent_key: str | None = None
) -> None:
    """Add a session that is not there yet."""
    key = SessionKey.parse(session_key)
    connection.execute(
        insert(sessions).values(
            session_key=session_key,
            tenant=key.tenant,
            user=key.user,
            kind=key.kind,
            agent=agent,
            parent_key=parent_key,
            state=SessionState.IDLE,
            label=Label.PUBLIC,
            created_at=now(),
            last_activity=now(),
        )
    )
    with SessionWriter(connection, session_key) as session:
        session.tell(EventKind.SESSION_OPENED, agent=agent, reopened=False)


def _dropped_by(connection: Connection, session_key: str, request_id: str) -> int | None:
    told = connection.scalar(
        select(events.c.payload).where(
            events.c.session_key == session_key,
            events.c.kind == EventKind.SESSION_RESET,
            events.c.payload["request_id"].as_string() == request_id,
        )
    )
    return None if told is None else int(told["dropped"])


def _reset(connection: Connection, request: SessionReset) -> None:
    if _dropped_by(connection, request.session_key, request.request_id) is not None:
        return
    with SessionWriter(connection, request.session_key) as session:
        epoch = session.row.epoch + 1
        session.change(epoch=epoch, label=Label.PUBLIC)
        keep_what_waits(session, "reset")
        for message_id in request.dropped:
            if mailbox.discard(connection, request.session_key, message_id):
                session.tell(EventKind.MESSAGE_DROPPED, message_id=message_id, reason="reset")
        session.tell(
            EventKind.SESSION_RESET,
            request_id=request.request_id,
            epoch=epoch,
            # The lineage: what this epoch follows, and where in the transcript it begins.
            follows=session.row.epoch,
            label_before=session.row.label,
            after_seq=session.row.next_seq - 1,
            dropped=len(request.dropped),
        )


def _close(connection: Connection, session_key: str) -> None:
    with SessionWriter(connection, session_key) as session:
        if session.row.state != SessionState.CLOSED:
            session.change(state=SessionState.CLOSED)
            session.tell(EventKind.SESSION_CLOSED)


def _get(connection: Connection, session_key: str) -> SessionRow | None:
    row = _row(connection, session_key)
    return None if row is None else session_of(row)


def _row(connection: Connection, session_key: str) -> Row[Any] | None:
    return (
        connection.execute(select(sessions).where(sessions.c.session_key == session_key))
    ).one_or_none()


def session_of(row: Row[Any]) -> SessionRow:
    """A row of the table as a session."""
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
