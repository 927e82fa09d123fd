"""Waiting for runs: which, and until when.

Invariant: what a call waits for is fixed when it begins to wait; a run that is steered is waited
for in its successor.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, select

from perdure.domain.messages import Frozen
from perdure.domain.runs import RunState
from perdure.domain.steps import ToolRequest
from perdure.store import waits
from perdure.store.database import Database
from perdure.store.delegation_tables import runs
from perdure.store.delegation_tables import waits as waits_table
from perdure.store.runs import Run, run_of
from perdure.store.session_writer import SessionWriter

_CALL = ("session_key", "turn", "step", "call")


class WaitForRuns(Frozen):
    """What a call waits for, and until when."""

    runs: tuple[Run, ...]
    until: datetime


class RunWaits:
    """The waits of `subagents wait`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_call(self, request: ToolRequest) -> WaitForRuns | None:
        """What a call waits for; None when it does not yet."""
        return await self._database.read(_of_call, request)

    async def open(
        self, request: ToolRequest, run_ids: Sequence[str], until: datetime
    ) -> WaitForRuns:
        """Have a call wait for runs: those named, or all of its session that have not ended.

        Raises:
            Deadlock: when one of them waits for this session.
        """
        return await self._database.write(_open, request, tuple(run_ids), until)


def _of_call(connection: Connection, request: ToolRequest) -> WaitForRuns | None:
    of_call = tuple(waits_table.c[name] == getattr(request, name) for name in _CALL)
    until = connection.scalar(select(waits_table.c.until).where(*of_call).limit(1))
    if until is None:
        return None
    rows = connection.execute(
        select(runs)
        .join(waits_table, waits_table.c.target_key == runs.c.session_key)
        .where(*of_call)
        .order_by(runs.c.run_id)
    )
    return WaitForRuns(runs=tuple(map(run_of, rows)), until=until)


def _open(
    connection: Connection, request: ToolRequest, run_ids: tuple[str, ...], until: datetime
) -> WaitForRuns:
    chosen = (
        runs.c.run_id.in_(run_ids)
        if run_ids
        else (runs.c.parent_key == request.session_key) & (runs.c.state != RunState.ENDED)
    )
    found = tuple(
        map(run_of, connection.execute(select(runs).where(chosen).order_by(runs.c.run_id)))
    )
    targets = [run.session_key for run in found]
    with SessionWriter(connection, request.session_key) as session:
        waits.open_wait(session, request, targets, until, level=request.label)
    return WaitForRuns(runs=found, until=until)
