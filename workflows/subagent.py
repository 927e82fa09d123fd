"""`SubAgent`: the session of a run, a child that works on one task and hands over its result.

Invariant: whatever becomes of its turns, the run is concluded, once, with the committed work in its
result; then the workflow ends. A later message opens the session again, for as long as there is
something to answer.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from activities.stubs import RunActivities
from perdure.domain.delegation import Conclude, Concluded
from perdure.domain.runs import EndReason
from perdure.domain.steps import RunProfile, SessionProfile
from workflows import view
from workflows.conversation import Conversation
from workflows.state import SessionState
from workflows.turn import HEARTBEAT_TIMEOUT

#: It condenses by a model call at most, checks files and writes: minutes, and never for ever.
_CONCLUDE_TIMEOUT = timedelta(minutes=10)
#: A run without a conclusion is found by the reconciler.
_CONCLUDE_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    maximum_interval=timedelta(minutes=1),
    maximum_attempts=100,
)


@workflow.defn
class SubAgent(Conversation):
    """The session of one run."""

    @workflow.init
    def __init__(self, state: SessionState) -> None:
        super().__init__(state)
        self._run: RunProfile | None = None
        self._watchdog: asyncio.Task[None] | None = None

    @workflow.run
    async def run(self, state: SessionState) -> None:
        """Work on the task, hand over the result, and end; or, opened again, converse."""
        await self.converse()

    def _opened(self, profile: SessionProfile) -> None:
        self._run = profile.run
        if self._run is None:
            return
        if self._run.ended:
            self._state.closing = True
        elif not self._run.queued:
            if self._run.stop is not None:
                self._stop(self._run.stop)
            if self._watchdog is None:
                self._watchdog = asyncio.create_task(self._watch(self._run.seconds))

    def _dormant(self) -> bool:
        # Whatever came for it lies in the mailbox, behind its task, until it has its place.
        return self._run is not None and self._run.queued and not self._state.resets

    def _stop(self, reason: EndReason) -> None:
        if self._run is None or self._run.ended:
            return
        self._state.stop = self._state.stop or reason
        self._engine.interrupt()

    async def _watch(self, seconds: float) -> None:
        await workflow.sleep(seconds, summary="the watchdog: limits.run_seconds")
        self._stop(EndReason.WATCHDOG_TIMEOUT)

    async def _turn_ended(self) -> None:
        if self._state.resets:
            return  # it is concluded before that is carried out
        if self._run is not None and not self._run.ended:
            await self._conclude(self._run, final=False)

    def _unfinished(self) -> bool:
        if self._run is None or self._run.ended:
            return False
        # Its turns are over, or there never was one, and nothing is on its way.
        return self._state.stop is not None or self._supervisor.settled

    async def _finish(self) -> None:
        assert self._run is not None, "it is unfinished"
        await self._conclude(self._run, final=True)

    async def _begin_anew(self) -> None:
        # Before the level of its words is forgotten.
        if self._run is not None and not self._run.ended:
            self._stop(EndReason.KILLED)
            await self._conclude(self._run, final=True)

    async def _conclude(self, run: RunProfile, *, final: bool) -> None:
        concluded = await self._concluded(run, final)
        if concluded.repair is not None:
            self._inbox.put_first(concluded.repair)
        elif concluded.reason is None:
            self._supervisor.look_again()
        else:
            self._run = run.model_copy(update={"ended": True})
            if self._watchdog is not None:
                self._watchdog.cancel()
            # What was to join its turn has none to join.
            self._inbox.remove(self._inbox.joining())
            self._state.stop = None
            self._state.closing = True

    async def _concluded(self, run: RunProfile, final: bool) -> Concluded:
        view.show(self._state, f"concluding {run.run_id}", self._supervisor.plan)
        return await workflow.execute_activity_method(
            RunActivities.conclude_run,
            Conclude(
                run_id=run.run_id,
                session_key=self._state.session_key,
                agent=self._state.agent,
                label=self._state.label,
                stop=self._state.stop,
                final=final,
            ),
            start_to_close_timeout=_CONCLUDE_TIMEOUT,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=_CONCLUDE_RETRY,
            summary=f"conclude {run.run_id}",
        )
