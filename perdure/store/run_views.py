"""Runs as whoever looks after them sees them: how far each is, and what it last did.

Invariant: reading only; a run shows up for the sessions above it, and for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, func, or_, select, true

from perdure.domain.labels import Label, can_flow, join
from perdure.domain.messages import Frozen
from perdure.domain.runs import EndReason, RunState, RunStatus, status_of
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.delegation_tables import runs
from perdure.store.readers import Reader, seen_by
from perdure.store.runs import Run, run_of
from perdure.store.tables import sessions, tool_claims

#: What of a task is shown in a list, in characters.
TASK_CHARACTERS = 120
#: The most runs of one page.
PAGE = 200


class RunView(Frozen):
    """One run in a list. Times in UTC, `runtime_ms` without its time in the queue."""

    run_id: str
    agent: str
    session_key: str
    parent_key: str
    status: RunStatus
    end_reason: EndReason | None
    task: str
    step: int
    max_steps: int
    last_tool: str | None
    depth: int
    started_at: datetime | None
    runtime_ms: int
    tokens: int
    label: Label


class RunList(Frozen):
    """A page of runs, oldest first, and how many there are in all."""

    runs: tuple[RunView, ...]
    total: int


class RunViews:
    """Lists of runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def below(
        self,
        session_key: str | None,
        *,
        recent_minutes: float | None = None,
        level: Label = Label.RESTRICTED,
        reader: Reader | None = None,
        limit: int = PAGE,
        offset: int = 0,
        after: str | None = None,
    ) -> RunList:
        """The runs below a session, at every depth, whose level is at most `level`; of all
        sessions for None. Those whose parent is not there for a `reader` are left out.

        `recent_minutes` leaves out those that ended longer ago. With `after`, a run's id, the page
        begins after that run.
        """
        return await self._database.read(
            _below, session_key, recent_minutes, level, reader, limit, offset, after
        )

    async def view(self, run_id: str, reader: Reader) -> RunView | None:
        """A run as a list shows it, under the conditions of `seen`."""
        return await self._database.read(_view, run_id, reader)

    async def seen(self, run_id: str, reader: Reader) -> Run | None:
        """A run, if it is at the reader's level at most, and its parent is there for the reader."""
        return await self._database.read(_seen, run_id, reader.level, of_seen(reader))

    async def find_below(self, session_key: str, run_id: str, level: Label) -> Run | None:
        """A run, if it is below this session and at `level` at most."""
        return await self._database.read(_seen, run_id, level, is_below([session_key]))


def _seen(
    connection: Connection, run_id: str, level: Label, *conditions: ColumnElement[bool]
) -> Run | None:
    row = connection.execute(
        select(runs)
        .join(sessions, sessions.c.session_key == runs.c.session_key)
        .where(runs.c.run_id == run_id, may_see(level), *conditions)
    ).one_or_none()
    return None if row is None else run_of(row)


def _view(connection: Connection, run_id: str, reader: Reader) -> RunView | None:
    query = rows_of(runs.c.run_id == run_id, may_see(reader.level), of_seen(reader))
    row = connection.execute(query).one_or_none()
    return None if row is None else view_of(row)


def is_below(session_keys: Sequence[str]) -> ColumnElement[bool]:
    """The condition that a run, or a run above it, was spawned by one of these sessions."""
    below = (
        select(runs.c.run_id, runs.c.session_key)
        .where(runs.c.parent_key.in_(session_keys))
        .cte("below", recursive=True)
    )
    below = below.union_all(
        select(runs.c.run_id, runs.c.session_key).join(
            below, runs.c.parent_key == below.c.session_key
        )
    )
    return runs.c.run_id.in_(select(below.c.run_id))


def may_see(level: Label) -> ColumnElement[bool]:
    """The condition that a run, joined with its session, is at `level` at most: its task, what it
    has taken in, and its result."""
    above = [label for label in Label if not can_flow(label, level)]
    return sessions.c.label.not_in(above) & runs.c.label.not_in(above)


def of_seen(reader: Reader) -> ColumnElement[bool]:
    """The condition that the session which spawned a run is there for a reader."""
    if reader.sees_all:
        return true()
    return runs.c.parent_key.in_(select(sessions.c.session_key).where(seen_by(reader)))


def since(minutes: float) -> datetime:
    """So many minutes ago."""
    return now() - timedelta(minutes=minutes)


def last_tool_of(session_key: ColumnElement[str]) -> ColumnElement[str]:
    """The tool that a session called last."""
    return (
        select(tool_claims.c.tool)
        .where(tool_claims.c.session_key == session_key)
        .order_by(tool_claims.c.turn.desc(), tool_claims.c.step.desc(), tool_claims.c.call.desc())
        .limit(1)
        .scalar_subquery()
        .label("last_tool")
    )


def rows_of(*conditions: ColumnElement[bool]) -> Select[Any]:
    """The rows that `view_of` reads, each run after the one that spawned it."""
    return (
        select(
            runs,
            sessions.c.step_count,
            sessions.c.input_tokens,
            sessions.c.output_tokens,
            sessions.c.label.label("session_label"),
            last_tool_of(runs.c.session_key),
        )
        .join(sessions, sessions.c.session_key == runs.c.session_key)
        .where(*conditions)
        .order_by(runs.c.path)
    )


def _below(
    connection: Connection,
    session_key: str | None,
    recent_minutes: float | None,
    level: Label,
    reader: Reader | None,
    limit: int,
    offset: int,
    after: str | None,
) -> RunList:
    conditions = [may_see(level)]
    if reader is not None:
        conditions.append(of_seen(reader))
    if session_key is not None:
        conditions.append(is_below([session_key]))
    if recent_minutes is not None:
        recent = runs.c.ended_at >= since(recent_minutes)
        conditions.append(or_(runs.c.ended_at.is_(None), recent))
    page = rows_of(*conditions).limit(limit).offset(offset)
    if after is not None:
        # By its path, which is the order of the list and never changes.
        before = runs.alias("before")
        path = select(before.c.path).where(before.c.run_id == after).scalar_subquery()
        page = page.where(runs.c.path > path)
    found = connection.execute(page)
    total = connection.scalar(
        select(func.count())
        .select_from(runs)
        .join(sessions, sessions.c.session_key == runs.c.session_key)
        .where(*conditions)
    )
    return RunList(runs=tuple(map(view_of, found)), total=int(total or 0))


def view_of(row: Row[Any]) -> RunView:
    """A row of `rows_of` as its view."""
    until = row.ended_at or now()
    runtime = until - row.started_at if row.started_at else timedelta()
    return RunView(
        run_id=row.run_id,
        agent=row.agent,
        session_key=row.session_key,
        parent_key=row.parent_key,
        status=status_of(
            RunState(row.state), EndReason(row.end_reason) if row.end_reason else None
        ),
        end_reason=row.end_reason,
        task=row.packet["task"][:TASK_CHARACTERS],
        step=row.step_count,
        max_steps=row.packet["max_steps"],
        last_tool=row.last_tool,
        depth=row.depth,
        started_at=row.started_at,
        runtime_ms=int(runtime.total_seconds() * 1_000),
        tokens=row.input_tokens + row.output_tokens,
        label=join(Label(row.label), Label(row.session_label)),
    )
