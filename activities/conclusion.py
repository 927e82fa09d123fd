"""How a run comes to its end: its outputs checked, its answer condensed, kept and handed over.

Invariant: a run ends once, with what it has committed, whatever fails here: a model that cannot
condense, a disk that cannot keep, a channel that cannot be reached.
"""

from __future__ import annotations

import asyncio

from temporalio import activity

from activities.delegation import may_spawn
from activities.heartbeat import heartbeating
from activities.post import Post
from activities.results import BY_ITSELF, Results, end_reason
from perdure.channels.courier import Courier
from perdure.config import Settings
from perdure.delegation import outputs
from perdure.delegation.outputs import Outputs
from perdure.delegation.results import message
from perdure.domain.delegation import Conclude, Concluded, Supervise, Supervision
from perdure.domain.envelopes import Envelope, Sender, SenderKind
from perdure.domain.errors import PerdureError
from perdure.domain.labels import join
from perdure.domain.runs import EndReason, RunState
from perdure.domain.steps import StepRequest
from perdure.guard import Guard
from perdure.sending import terms_of
from perdure.store import Store
from perdure.store.runs import Run
from perdure.store.stopping import Ended
from perdure.workspace import Workspace


class Runs:
    """`RunActivities`, over the store, the models and the channels."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        guard: Guard,
        courier: Courier,
        post: Post,
        results: Results,
    ) -> None:
        self._settings = settings
        self._store = store
        self._guard = guard
        self._courier = courier
        self._post = post
        self._results = results

    @activity.defn
    async def supervise(self, request: Supervise) -> Supervision:
        """What there is to do for the runs of a session."""
        plan = await self._store.supervision.plan(
            request,
            terms_of(self._settings),
            lambda agent: may_spawn(self._settings, request.agent, agent),
        )
        await self._post.wake(*plan.wake)
        return plan.supervision

    @activity.defn
    async def conclude_run(self, request: Conclude) -> Concluded:
        """Check, condense, keep and hand over the result of a run; or tell it what is missing; or
        have it go on where something is outstanding."""
        async with heartbeating():
            run = await self._store.runs.get(request.run_id)
            if run.state is RunState.ENDED:
                return await self._hand_over(await self._store.stopping.ended(run))
            turn = await self._store.run_outcomes.last_turn(request.session_key)
            found = await asyncio.to_thread(self._results.outputs, run)
            reason = end_reason(run, request.stop, turn, found)
            # What it has done by itself is not over while something is to come yet.
            final = request.final or reason not in BY_ITSELF
            if not final and await self._store.stopping.outstanding(run):
                return Concluded()
            if reason is EndReason.MISSING_OUTPUTS and await self._may_repair(run):
                return Concluded(repair=await self._repair(run, request, found))
            label = join(run.label, request.label)
            result = await self._results.make(run, label, turn, found, reason)
            ended = await self._store.stopping.end(run.run_id, result, label, final=final)
            return await self._hand_over(ended)

    async def _hand_over(self, ended: Ended) -> Concluded:
        if ended.run.state is not RunState.ENDED:
            return Concluded()
        # One that was steered away has a successor, whose result is the one to tell.
        if (await self._store.runs.newest(ended.run.run_id)).run_id == ended.run.run_id:
            await self._announce(ended.run)
        await self._post.wake(*ended.wake)
        return Concluded(reason=ended.run.end_reason)

    async def _may_repair(self, run: Run) -> bool:
        """Whether it was not told yet what is missing, or has not taken that in."""
        return not run.repairs or await self._store.mailbox.holds(run.session_key, _repair_id(run))

    async def _repair(self, run: Run, request: Conclude, found: Outputs) -> Envelope:
        text = await asyncio.to_thread(
            outputs.repair, self._workspace(run.session_key), found.missing
        )
        envelope = Envelope(
            message_id=_repair_id(run),
            sender=Sender(kind=SenderKind.SYSTEM, id="perdure"),
            label=request.label,
        )
        await self._store.run_outcomes.repair(run.run_id, envelope, text)
        return envelope

    async def _announce(self, run: Run) -> None:
        announce = run.packet.announce
        if announce is None or run.result is None:
            return
        asked = StepRequest(
            session_key=run.session_key,
            agent=run.agent,
            turn=0,
            step=0,
            message_id="",
            label=run.label,
        )
        judged = await asyncio.to_thread(
            self._guard.announcement,
            asked,
            announce.channel_type,
            announce.channel_id,
            message(run.result, run.agent),
        )
        await self._store.record(*judged.entries)
        if not judged.goes_on:
            return
        try:
            await self._courier.send(
                session_key=run.session_key,
                channel=announce.channel_type,
                recipient=announce.channel_id,
                text=judged.text,
                label=run.label,
                cause=f"announce/{run.run_id}",
            )
        except PerdureError as error:
            # The ledger tells what became of it; the result is not held up.
            activity.logger.warning("the announcement of %s failed: %s", run.run_id, error.code)

    def _workspace(self, session_key: str) -> Workspace:
        return Workspace.for_session(
            self._settings.home, session_key, self._settings.limits.file_bytes
        )


def _repair_id(run: Run) -> str:
    return f"repair_{run.run_id}"
