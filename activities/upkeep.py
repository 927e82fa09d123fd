"""Upkeep: runs whose workflow is gone, answers that did not leave, results whose time is over.

Invariant: a run that works is left alone. One that nothing will ever end is ended with what it
has committed, and its parent is woken, which starts it again if it is gone too; one that was never
begun is begun.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.heartbeat import heartbeating
from activities.post import Post, workflow_id
from activities.replying import Replying
from activities.results import Results
from perdure.config import Settings
from perdure.delegation.full_results import sweep
from perdure.domain.delegation import UpkeepReport
from perdure.domain.labels import join
from perdure.domain.runs import EndReason, RunState
from perdure.store import Store
from perdure.store.clock import now
from perdure.store.runs import UNDER_WAY, Address, Run

#: Runs looked at in one round; the rest wait for the next.
MOST = 1_000


class UpkeepWork:
    """`UpkeepActivities`, over the store, the home folder and the cluster."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        temporal: Client,
        post: Post,
        results: Results,
        replying: Replying,
    ) -> None:
        self._settings = settings
        self._store = store
        self._temporal = temporal
        self._post = post
        self._results = results
        self._replying = replying

    @activity.defn
    async def reconcile_runs(self) -> UpkeepReport:
        """End the runs that nothing else will end, and have their results handed over; and send
        the answers that did not leave."""
        ended: list[str] = []
        woken: list[str] = []
        async with heartbeating():
            for run in await self._store.reconciling.unsettled(MOST):
                if run.state in UNDER_WAY:
                    await self._look_after(run, ended, woken)
                else:
                    await self._hand_over(run, woken)
            await self._replying.deliver_left_behind()
        return UpkeepReport(ended=tuple(ended), woken=tuple(woken))

    async def _look_after(self, run: Run, ended: list[str], woken: list[str]) -> None:
        """A run under way: left alone if its workflow is there, begun if it never was, ended if
        it is gone."""
        own = Address(session_key=run.session_key, agent=run.agent)
        if await self._is_open(run.session_key):
            if run.state is RunState.STOPPING:
                # Whoever stopped it may have died before it could be told.
                await self._post.wake(own)
            return
        row = await self._store.sessions.get(run.session_key)
        if row is None or not row.turn:
            await self._post.wake(own)
            woken.append(run.run_id)
            return
        await self._post.wake(*await self._end(run))
        ended.append(run.run_id)

    async def _hand_over(self, run: Run, woken: list[str]) -> None:
        """A result that nobody took, or a run that waits though its time is over."""
        parent = await self._store.sessions.get(run.parent_key)
        if parent is None:
            return
        if run.state is RunState.ENDED and not await self._is_open(run.parent_key):
            await self._store.reconciling.tell_kept(run)
        await self._post.wake(Address(session_key=run.parent_key, agent=parent.agent))
        woken.append(run.run_id)

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

    async def _end(self, run: Run) -> tuple[Address, ...]:
        """End a run with what it has said; who is to be woken."""
        turn = await self._store.run_outcomes.last_turn(run.session_key)
        row = await self._store.sessions.get(run.session_key)
        label = run.label if row is None else join(run.label, row.label)
        found = await asyncio.to_thread(self._results.outputs, run)
        reason = run.stop or EndReason.SWEPT
        result = await self._results.make(run, label, turn, found, reason)
        return (await self._store.stopping.end(run.run_id, result, label, final=True)).wake
