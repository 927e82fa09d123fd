"""Upkeep: runs whose workflow is gone, results whose time is over.

Invariant: a run that works is left alone. One that nothing will ever end is ended with what it
has committed, and its parent is woken, which starts it again if it is gone too.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.heartbeat import heartbeating
from activities.post import Post, workflow_id
from perdure.config import Settings
from perdure.delegation.condensation import condense
from perdure.delegation.full_results import sweep
from perdure.delegation.results import RunResult, condensation_of
from perdure.domain.delegation import UpkeepReport
from perdure.domain.runs import EndReason, RunState, status_of
from perdure.store import Store
from perdure.store.clock import now
from perdure.store.runs import Address, Run

#: Runs looked at in one round; the rest wait for the next.
MOST = 1_000


class UpkeepWork:
    """`UpkeepActivities`, over the store, the home folder and the cluster."""

    def __init__(self, settings: Settings, store: Store, temporal: Client, post: Post) -> None:
        self._settings = settings
        self._store = store
        self._temporal = temporal
        self._post = post

    @activity.defn
    async def reconcile_runs(self) -> UpkeepReport:
        """End the runs that nothing else will end, and have their results handed over."""
        ended: list[str] = []
        woken: list[str] = []
        async with heartbeating():
            for run in await self._store.reconciling.unsettled(MOST):
                if run.state in (RunState.RUNNING, RunState.STOPPING):
                    if await self._is_open(run.session_key):
                        continue
                    row = await self._store.sessions.get(run.session_key)
                    if row is not None and row.turn:
                        await self._end(run)
                        ended.append(run.run_id)
                parent = await self._store.sessions.get(run.parent_key)
                if parent is None:
                    continue
                if not await self._is_open(run.parent_key):
                    await self._store.reconciling.tell_kept(run)
                await self._post.wake(Address(session_key=run.parent_key, agent=parent.agent))
                woken.append(run.run_id)
        return UpkeepReport(ended=tuple(ended), woken=tuple(woken))

    @activity.defn
    async def sweep_results(self) -> UpkeepReport:
        """Remove the files of whole results whose time is over."""
        async with heartbeating():
            older = now() - timedelta(seconds=self._settings.limits.run_result_seconds)
            removed = await asyncio.to_thread(sweep, self._settings.home, older)
        return UpkeepReport(swept=len(removed))

    async def _is_open(self, session_key: str) -> bool:
        handle = self._temporal.get_workflow_handle(workflow_id(session_key))
        try:
            described = await handle.describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        return described.status is WorkflowExecutionStatus.RUNNING

    async def _end(self, run: Run) -> None:
        last = await self._store.reconciling.last_answer(run)
        condensed = await condense(last.text, None, limit=self._settings.limits.run_result_tokens)
        reason = run.stop or EndReason.SWEPT
        result = RunResult(
            run_id=run.run_id,
            session_key=run.session_key,
            status=status_of(RunState.ENDED, reason),
            end_reason=reason,
            response=condensed.text,
            condensation=condensation_of(condensed),
        )
        await self._store.stopping.end(run.run_id, result, last.label)
