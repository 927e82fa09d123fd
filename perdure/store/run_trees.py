"""Sessions and the runs below them, as a tree: who spawned whom, and how far each is.

Invariant: reading only, in one transaction. Each run stands once, below what spawned it; what is
below a run that may not be seen is not seen either.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import CTE, ColumnElement, Connection, Row, or_, select, true

from perdure.domain.keys import Kind
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen
from perdure.domain.runs import RunState
from perdure.domain.states import SessionState
from perdure.store.database import Database
from perdure.store.delegation_tables import runs
from perdure.store.marks import Mark
from perdure.store.readers import Reader, seen_by
from perdure.store.run_views import (
    RunView,
    is_below,
    last_tool_of,
    may_see,
    of_seen,
    rows_of,
    since,
    view_of,
)
from perdure.store.tables import sessions

#: The most runs of one reading; a person sees no more at once.
MOST = 1_000


class RunNode(RunView):
    """A run, and the runs that it spawned, oldest first."""

    queued_at: datetime
    ended_at: datetime | None
    runs: tuple[RunNode, ...] = ()


class SessionTree(Frozen):
    """A session, and the runs that it spawned, oldest first."""

    session_key: str
    agent: str
    kind: Kind
    state: SessionState
    label: Label
    turns: int
    steps: int
    tokens: int
    last_tool: str | None
    last_activity: datetime
    runs: tuple[RunNode, ...] = ()


class Forest(Frozen):
    """Sessions with their runs, last active first; `total` is how many there are in all, and
    `cut` tells that some runs are not here: there are more than `MOST`."""

    sessions: tuple[SessionTree, ...]
    total: int
    cut: bool = False


class RunTrees:
    """Reads trees."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read(
        self,
        session_key: str | None,
        *,
        recent_minutes: float | None = None,
        level: Label = Label.RESTRICTED,
        reader: Reader | None = None,
        limit: int = 50,
        offset: int = 0,
        mark: Mark | None = None,
    ) -> Forest:
        """The tree of a session; for None those of all sessions that nobody spawned, if they are
        at work or have runs.

        `recent_minutes` leaves out runs that ended longer ago, unless one below them did not.
        Runs above `level` are left out, and all that is not there for a `reader`. With a mark, the
        page begins after the session of that time and key.
        """
        return await self._database.read(
            _read, session_key, recent_minutes, level, reader, limit, offset, mark
        )


def _read(
    connection: Connection,
    session_key: str | None,
    recent_minutes: float | None,
    level: Label,
    reader: Reader | None,
    limit: int,
    offset: int,
    mark: Mark | None,
) -> Forest:
    kept = _kept(recent_minutes)
    seen = true() if reader is None else seen_by(reader)
    found = connection.execute(_roots(session_key, kept).where(seen)).all()
    if mark is not None:
        place = (-mark.time.timestamp(), mark.id)
        offset = sum((-root.last_activity.timestamp(), root.session_key) <= place for root in found)
    roots = found[offset : offset + limit]
    conditions = [may_see(level), is_below([root.session_key for root in roots])]
    if reader is not None:
        conditions.append(of_seen(reader))
    if kept is not None:
        conditions.append(runs.c.run_id.in_(select(kept.c.run_id)))
    rows = connection.execute(rows_of(*conditions).limit(MOST + 1)).all()
    trees = _nested(roots, [_node(row) for row in rows[:MOST]])
    return Forest(sessions=tuple(trees), total=len(found), cut=len(rows) > MOST)


def _kept(minutes: float | None) -> CTE | None:
    """The runs that have not ended longer ago, and those above them; None for all."""
    if minutes is None:
        return None
    # Each half has its index.
    under_way = select(runs.c.run_id, runs.c.parent_key).where(
        runs.c.state.in_([state for state in RunState if state is not RunState.ENDED])
    )
    ended = select(runs.c.run_id, runs.c.parent_key).where(runs.c.ended_at >= since(minutes))
    recent = under_way.union(ended).cte("recent")
    kept = select(recent.c.run_id, recent.c.parent_key).cte("kept", recursive=True)
    return kept.union(
        select(runs.c.run_id, runs.c.parent_key).join(kept, runs.c.session_key == kept.c.parent_key)
    )


def _roots(session_key: str | None, kept: CTE | None) -> Any:
    condition: ColumnElement[bool]
    if session_key is not None:
        condition = sessions.c.session_key == session_key
    else:
        parents = select(runs.c.parent_key) if kept is None else select(kept.c.parent_key)
        at_work = sessions.c.state.in_((SessionState.RUNNING, SessionState.WAITING))
        condition = sessions.c.parent_key.is_(None) & or_(
            at_work, sessions.c.session_key.in_(parents)
        )
    return (
        select(sessions, last_tool_of(sessions.c.session_key))
        .where(condition)
        .order_by(sessions.c.last_activity.desc(), sessions.c.session_key)
    )


def _node(row: Row[Any]) -> RunNode:
    view = view_of(row).model_dump()
    return RunNode(**view, queued_at=row.queued_at, ended_at=row.ended_at)


def _nested(roots: Sequence[Row[Any]], nodes: Sequence[RunNode]) -> tuple[SessionTree, ...]:
    below: dict[str, list[RunNode]] = defaultdict(list)
    for node in sorted(nodes, key=lambda node: (node.queued_at, node.run_id)):
        below[node.parent_key].append(node)

    def branches(session_key: str) -> tuple[RunNode, ...]:
        return tuple(
            node.model_copy(update={"runs": branches(node.session_key)})
            for node in below.get(session_key, ())
        )

    return tuple(
        SessionTree(
            session_key=root.session_key,
            agent=root.agent,
            kind=root.kind,
            state=root.state,
            label=root.label,
            turns=root.turn,
            steps=root.step_count,
            tokens=root.input_tokens + root.output_tokens,
            last_tool=root.last_tool,
            last_activity=root.last_activity,
            runs=branches(root.session_key),
        )
        for root in roots
    )
