"""The supervisor of a session's runs: starts them, and takes in what they hand over.

Invariant: it works beside the turn, so a run gets its place and hands over its result while the
session is busy. What it knows is in the store; it sleeps until somebody wakes it, or until a run
has waited for its place too long.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import WorkflowAlreadyStartedError

from activities.stubs import RunActivities
from perdure.domain.delegation import Supervise, Supervision
from perdure.domain.errors import Code, PerdureError
from perdure.domain.runs import EndReason
from perdure.domain.steps import ChildStart, SessionProfile
from workflows import view
from workflows.inbox import Inbox
from workflows.state import SessionState
from workflows.stored import write

#: Seconds until a full inbox is tried again.
_FULL = 30.0


class Supervisor:
    """Looks after the runs of one session. Tells it when it is a run to be stopped (`stop`), and
    when a run that a call may wait for has ended without a workflow (`dropped`)."""

    def __init__(
        self,
        state: SessionState,
        inbox: Inbox,
        stop: Callable[[EndReason], None],
        dropped: Callable[[], None],
    ) -> None:
        self._state = state
        self._inbox = inbox
        self._stop = stop
        self._dropped = dropped
        #: Until the session knows its past, and between two runs.
        self._resting = True
        self._plan = Supervision()
        self._work: asyncio.Task[None] | None = None

    @property
    def plan(self) -> Supervision:
        """What the store said last."""
        return self._plan

    @property
    def settled(self) -> bool:
        """Whether nothing is under way and nothing is to come, as far as is known."""
        busy = self._state.woken or (self._work is not None and not self._work.done())
        return not (busy or self._plan.running or self._plan.queued)

    def open(self, profile: SessionProfile) -> None:
        """Begin, or go on after a rest."""
        self._resting = False
        if self._state.woken or profile.runs:
            self.look_again()

    def look_again(self) -> None:
        """Ask the store anew."""
        self._state.woken = True
        if not self._resting and (self._work is None or self._work.done()):
            self._work = asyncio.create_task(self._supervise())

    async def rest(self) -> None:
        """Finish what is under way and do nothing more until `open`."""
        self._resting = True
        if self._work is not None:
            await asyncio.wait([self._work])

    async def start(self, child: ChildStart) -> None:
        """Start the workflow of a run, once."""
        if child.run_id in self._state.started:
            return
        self._state.started.append(child.run_id)
        try:
            await workflow.start_child_workflow(
                "SubAgent",
                SessionState(session_key=child.session_key, agent=child.agent),
                id=f"session/{child.session_key}",
                # A parent that continues as new would take any other child down with it.
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                static_summary=view.run_summary(child, self._state.session_key),
                search_attributes=view.run_attributes(child, self._state.session_key),
            )
        except WorkflowAlreadyStartedError:
            # By a workflow of this session that was lost before it could remember.
            workflow.logger.info("the run %s was started before", child.run_id)

    async def _supervise(self) -> None:
        while not self._resting and (self._state.woken or self._plan.seconds is not None):
            if not self._state.woken:
                await self._sleep(self._plan.seconds or 0.0)
                if self._resting:
                    return
            self._state.woken = False
            self._plan = await write(
                RunActivities.supervise,
                Supervise(
                    session_key=self._state.session_key,
                    agent=self._state.agent,
                    label=self._state.label,
                ),
                "look after the runs",
            )
            await self._carry_out(self._plan)

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await workflow.wait_condition(
                lambda: self._state.woken or self._resting,
                timeout=timedelta(seconds=max(seconds, 0.1)),
                timeout_summary=(
                    f"{self._plan.queued} runs wait for a place"
                    if self._plan.queued
                    else "results wait for room in the inbox"
                ),
            )

    async def _carry_out(self, plan: Supervision) -> None:
        for child in plan.start:
            await self.start(child)
        waiting = {child.run_id for child in plan.start}
        self._state.started[:] = [run_id for run_id in self._state.started if run_id in waiting]
        if not self._state.resets:
            # What was handed over before a reset does not outlive it.
            self._admit(plan)
        if plan.dropped:
            self._dropped()
        if plan.stop is not None:
            self._stop(plan.stop)

    def _admit(self, plan: Supervision) -> None:
        for envelope in plan.admit:
            try:
                self._inbox.check(envelope)
                self._inbox.admit(envelope)
            except PerdureError as error:
                workflow.logger.warning("cannot take in %s yet: %s", envelope.message_id, error)
                if error.code is Code.LIMIT_EXCEEDED:
                    # It lies in the mailbox, and there will be room.
                    seconds = min(plan.seconds or _FULL, _FULL)
                    self._plan = plan.model_copy(update={"seconds": seconds})
