"""`SubAgent`: the session of a run, a child that works on one task and hands over its result.

Invariant: whatever its turn came to, the run is concluded, once, with the committed work in its
result; then the workflow ends. A later message opens the session again, as any other.
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
from workflows.state import CurrentTurn, SessionState
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
        if self._run is None or self._run.ended:
            return
        if self._run.stop is not None:
            self._stop(self._run.stop)
        if self._watchdog is None:
            self._watchdog = asyncio.create_task(self._watch(self._run.seconds))

    def _stop(self, reason: EndReason) -> None:
        if self._run is None or self._run.ended:
            return
        self._state.stop = self._state.stop or reason
        self._engine.interrupt()

    async def _watch(self, seconds: float) -> None:
        await workflow.sleep(seconds, summary="the watchdog: limits.run_seconds")
        self._stop(EndReason.WATCHDOG_TIMEOUT)

    async def _stopped(self) -> None:
        # Its task was discarded by a reset, and its time is over or somebody has stopped it.
        await self._settle(None)
        self._state.stop = None

    async def _turn_ended(self, current: CurrentTurn) -> None:
        await self._settle(current)

    async def _settle(self, current: CurrentTurn | None) -> None:
        """Bring the run to its end after a turn, or where none will come."""
        if self._run is None or self._run.ended:
            return
        concluded = await self._conclude(self._run, current)
        if concluded.repair is not None:
            self._inbox.put_first(concluded.repair)
            return
        self._run = self._run.model_copy(update={"ended": True})
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._state.stop = None
        self._state.closing = True

    async def _conclude(self, run: RunProfile, current: CurrentTurn | None) -> Concluded:
        view.show(self._state, f"concluding {run.run_id}", self._supervisor.plan)
        return await workflow.execute_activity_method(
            RunActivities.conclude_run,
            Conclude(
                run_id=run.run_id,
                session_key=self._state.session_key,
                agent=self._state.agent,
                turn=current.turn if current else self._state.turn,
                message_id=current.envelope.message_id if current else "",
                label=self._state.label,
                stop=self._state.stop,
            ),
            start_to_close_timeout=_CONCLUDE_TIMEOUT,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=_CONCLUDE_RETRY,
            summary=f"conclude {run.run_id}",
        )
