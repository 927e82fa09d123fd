"""Schedules as rows: added, found, listed, removed.

Invariant: a number names one schedule for ever, and a name one at a time in its tenant.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, not_, select, tuple_

from perdure.domain.errors import Conflict
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen
from perdure.domain.schedules import Overlap, ScheduleKind
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.readers import Reader, seen_by
from perdure.store.schedule_tables import schedules
from perdure.store.sessions import make_session
from perdure.store.tables import mailbox, sessions


class NewSchedule(Frozen):
    """A schedule to be added."""

    tenant: str
    name: str
    kind: ScheduleKind
    session_key: str
    agent: str | None = None
    text: str
    label: Label
    cron: str | None = None
    every: float | None = None
    timezone: str
    overlap: Overlap
    created_by: str


class ScheduleRow(NewSchedule):
    """A schedule as the store has it."""

    number: int
    created_at: datetime


class Schedules:
    """The schedules table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, new: NewSchedule) -> ScheduleRow:
        """Add a schedule.

        Raises:
            Conflict: when its tenant has one of that name.
        """
        return await self._database.write(_add, new)

    async def get(self, number: int) -> ScheduleRow | None:
        """The schedule of a number, if it was not removed."""
        return await self._database.read(_get, schedules.c.number == number)

    async def named(self, tenant: str, name: str) -> ScheduleRow | None:
        """The schedule of a name in a tenant, if there is one."""
        named = (schedules.c.tenant == tenant) & (schedules.c.name == name)
        return await self._database.read(_get, named)

    async def page(
        self,
        reader: Reader,
        tenant: str | None,
        limit: int,
        offset: int,
        after: tuple[str, str] | None = None,
    ) -> tuple[list[ScheduleRow], int]:
        """A page of the schedules that are there for a reader, of a tenant or of all, by tenant
        and name, from the one behind the tenant and name of `after` on; and how many there are."""
        return await self._database.read(_page, reader, tenant, limit, offset, after)

    async def remove(self, number: int) -> None:
        """Remove a schedule, if it is there."""
        await self._database.write(_remove, number)

    async def waits(self, session_key: str, prefix: str) -> bool:
        """Whether a message whose id begins with `prefix` waits for a session."""
        return await self._database.read(_waits, session_key, prefix)

    async def open_session(self, session_key: str, agent: str) -> tuple[str, Label]:
        """The agent and the label of a session, which is made if it is new."""
        return await self._database.write(_open_session, session_key, agent)


def _add(connection: Connection, new: NewSchedule) -> ScheduleRow:
    named = (schedules.c.tenant == new.tenant) & (schedules.c.name == new.name)
    if _get(connection, named) is not None:
        raise Conflict(
            f"There is a schedule {new.name} already.",
            "Remove it first (`perdure schedule remove`), or use another name.",
        )
    connection.execute(insert(schedules).values(**new.model_dump(), created_at=now()))
    row = _get(connection, named)
    assert row is not None, "it was added just now"
    return row


def _get(connection: Connection, condition: Any) -> ScheduleRow | None:
    row = connection.execute(select(schedules).where(condition)).one_or_none()
    return None if row is None else _row(row)


def _page(
    connection: Connection,
    reader: Reader,
    tenant: str | None,
    limit: int,
    offset: int,
    after: tuple[str, str] | None,
) -> tuple[list[ScheduleRow], int]:
    conditions = []
    for asked in (tenant, reader.tenant):
        if asked is not None:
            conditions.append(schedules.c.tenant == asked)
    if not reader.sees_all:
        # Of a session that is not there for them there is no schedule; of a new one there is.
        its = sessions.c.session_key == schedules.c.session_key
        hidden = select(sessions.c.session_key).where(its, not_(seen_by(reader)))
        conditions.append(not_(hidden.exists()))
    query = select(schedules).where(*conditions).order_by(schedules.c.tenant, schedules.c.name)
    count = select(func.count()).select_from(schedules).where(*conditions)
    if after is not None:
        query = query.where(tuple_(schedules.c.tenant, schedules.c.name) > tuple_(*after))
    rows = connection.execute(query.limit(limit).offset(offset))
    return [_row(row) for row in rows], int(connection.scalar(count) or 0)


def _remove(connection: Connection, number: int) -> None:
    connection.execute(delete(schedules).where(schedules.c.number == number))


def _waits(connection: Connection, session_key: str, prefix: str) -> bool:
    query = select(mailbox.c.message_id).where(
        mailbox.c.session_key == session_key,
        # A range of the primary key: of ids that begin so.
        mailbox.c.message_id >= prefix,
        mailbox.c.message_id < f"{prefix}~",
    )
    return connection.execute(query.limit(1)).first() is not None


def _open_session(connection: Connection, session_key: str, agent: str) -> tuple[str, Label]:
    query = select(sessions.c.agent, sessions.c.label).where(sessions.c.session_key == session_key)
    row = connection.execute(query).one_or_none()
    if row is not None:
        return row.agent, Label(row.label)
    make_session(connection, session_key, agent)
    return agent, Label.PUBLIC


def _row(row: Row[Any]) -> ScheduleRow:
    return ScheduleRow.model_validate(dict(row._mapping))
