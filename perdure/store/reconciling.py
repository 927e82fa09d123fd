"""Runs that may have been lost: under way for long, or with a result that nobody took.

Invariant: what is younger than `GRACE` is left alone: it is on its way.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Connection, and_, or_, select

from perdure.domain.runs import RunState
from perdure.domain.states import EventKind
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.delegation_tables import runs
from perdure.store.runs import UNDER_WAY, Run, run_of
from perdure.store.session_writer import SessionWriter

#: How long a step from one state to the next may take before anyone looks after it.
GRACE = timedelta(seconds=30)


class Reconciling:
    """Looking for what was lost."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def unsettled(self, limit: int) -> list[Run]:
        """Up to `limit` runs that have not been handed over, and had time to be."""
        return await self._database.read(_unsettled, limit)

    async def tell_kept(self, run: Run) -> None:
        """Tell that the result of a run is kept though the workflow of its parent is gone."""
        await self._database.write(_tell_kept, run)


def _unsettled(connection: Connection, limit: int) -> list[Run]:
    before = now() - GRACE
    rows = connection.execute(
        select(runs)
        .where(
            or_(
                and_(runs.c.state.in_(UNDER_WAY), runs.c.started_at < before),
                and_(runs.c.state == RunState.QUEUED, runs.c.queue_until < before),
                and_(
                    runs.c.state == RunState.ENDED,
                    runs.c.handed_at.is_(None),
                    runs.c.ended_at < before,
                ),
            )
        )
        .order_by(runs.c.queued_at)
        .limit(limit)
    )
    return [run_of(row) for row in rows]


def _tell_kept(connection: Connection, run: Run) -> None:
    with SessionWriter(connection, run.parent_key) as parent:
        parent.tell(EventKind.RUN_KEPT, run_id=run.run_id, reason="parent gone")
