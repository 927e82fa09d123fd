"""The turn engine: model step, tools, model step, until an answer; for any kind of session.

Invariant: one turn at a time, one model step at a time, the calls of a step in parallel. The
engine holds its place in `state.current`, so a turn may go on in the next run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    TimeoutError,
    is_cancelled_exception,
)

from activities.stubs import (
    ExchangeActivities,
    SessionActivities,
    StepActivities,
    ToolActivities,
)
from perdure.domain.envelopes import Envelope, SenderKind
from perdure.domain.errors import Code, Refusal
from perdure.domain.labels import Label, join
from perdure.domain.replies import OwedReply
from perdure.domain.states import SessionState as State
from perdure.domain.states import TurnState
from perdure.domain.steps import (
    ExchangeTurn,
    Lane,
    PlannedCall,
    SessionProfile,
    StepOutcome,
    StepRequest,
    ToolOutcome,
    ToolRequest,
    TurnEnd,
    Waiting,
    WaitsFor,
)
from perdure.tools.subagents import SPAWN
from workflows import view
from workflows.inbox import Inbox
from workflows.state import CurrentTurn, SessionState
from workflows.stored import write
from workflows.supervisor import Supervisor

Result = TypeVar("Result")

#: A dead worker is noticed this long after its last heartbeat, which it sends every second.
HEARTBEAT_TIMEOUT = timedelta(seconds=5)
#: Beyond a tool's own timeout, which the activity keeps itself: time to claim and to seal.
TOOL_GRACE = timedelta(seconds=15)
#: Attempts that may be lost before they begin: a worker that is frozen, not dead, swallows a task
#: for each of its open polls. Those that begin are counted in the store and bounded there.
LOST_ATTEMPTS = 10
#: After a crash a tool call is looked at again at once; its claim keeps it from running twice.
TOOLS = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    maximum_interval=timedelta(seconds=5),
    maximum_attempts=LOST_ATTEMPTS + 4,
)

#: The shortest wait, in seconds: a deadline that is over costs a look, not a busy loop.
MIN_WAIT = 0.5
_SESSIONS = (SenderKind.SESSION, SenderKind.PARENT)

INTERRUPTED = Refusal(
    code=Code.UNAVAILABLE,
    message="The turn was interrupted.",
    hint="The session goes on with the next message.",
)


class TurnEngine:
    """Runs `state.current` to its end."""

    def __init__(self, state: SessionState, inbox: Inbox, supervisor: Supervisor) -> None:
        self._state = state
        self._inbox = inbox
        self._supervisor = supervisor
        self._attribute = view.StateAttribute()
        self._in_flight: set[workflow.ActivityHandle[Any]] = set()
        self._woken = False
        #: Whether the turn waits for another session.
        self._asking = False
        #: Set from the session's profile before the first turn of a run.
        self.profile: SessionProfile

    def begin(self, current: CurrentTurn) -> None:
        """Make `current` the turn under way."""
        self._state.turn = current.turn
        self._state.current = current
        self._take_in(current.envelope.label)

    def look_again(self) -> None:
        """Look again at the calls that wait: a person, a run or another session has done
        something."""
        self._woken = True

    def interrupt(self) -> int | None:
        """Stop the turn under way, keeping what it has; its number, or None when none runs."""
        current = self._state.current
        if current is None:
            return None
        for turn in (current, *self._state.asides):
            turn.interrupted = True
        for handle in self._in_flight:
            handle.cancel()
        return current.turn

    async def run(self, yield_when: Callable[[], bool]) -> None:
        """Take steps until the turn ends, or stop between two steps once `yield_when()`."""
        current = self._state.current
        assert current is not None, "a turn has begun"
        if not await self._go_on(current, yield_when):
            return
        for aside in self._state.asides:
            # The turn was interrupted, and they with it: this only ends them.
            await self._go_on(aside, yield_when)
        self._state.asides.clear()
        self._state.current = None
        self._show("idle")

    async def _go_on(self, current: CurrentTurn, yield_when: Callable[[], bool]) -> bool:
        """Take steps of a turn; False when it is to go on in the next run."""
        ended = False
        while not (ended or current.interrupted):
            if not current.calls:
                ended = await self._step(current)
            if ended or current.interrupted:
                continue
            await self._run_tools(current, yield_when)
            if current.interrupted:
                continue
            if not current.calls:
                current.step += 1
                self._attribute.set(State.RUNNING)
            if yield_when():
                return False
        if not ended:
            await self._end(current, TurnState.INTERRUPTED, INTERRUPTED)
            if self._asking or any(call.tool == SPAWN for call in current.calls):
                # An answer may be there that the turn has not read: now it is a late one. And what
                # a run comes to is a message now.
                self._asking = False
                self._supervisor.look_again()
        if current.envelope.exchange is not None and not current.aside:
            await self._reply(current)
        if current.envelope.replies:
            self._state.owed.append(self._owed(current))
        return True

    def rest(self) -> None:
        """Show that nothing waits."""
        self._attribute.set(State.IDLE)

    def close(self) -> None:
        """Show that the session is closed."""
        self._attribute.set(State.CLOSED)

    async def _step(self, current: CurrentTurn) -> bool:
        """One model call and its tools; whether the turn has ended."""
        self._show(f"calling the model · turn {current.turn} · step {current.step}")
        joining = () if current.aside else self._inbox.joining()
        for envelope in joining:
            self._take_in(envelope.label)
        try:
            outcome = await self._take_step(current, joining)
        except ActivityError as error:
            if is_cancelled_exception(error):
                return False
            await self._end(current, TurnState.FAILED, reason_of(error))
            return True
        self._inbox.remove(joining)
        self._state.compact = outcome.compact or self._state.compact
        if outcome.ended is not None:
            return True
        current.calls = outcome.calls
        return False

    async def _run_tools(self, current: CurrentTurn, yield_when: Callable[[], bool]) -> None:
        """Run the calls of a step; what waits stays in `current.calls`.

        Returns when none waits, on an interrupt, and when the run is to yield.
        """
        while current.calls and not current.interrupted:
            if not current.aside and not await self._answer_aside(yield_when):
                return
            self._woken = False
            tools = ", ".join(sorted({planned.tool for planned in current.calls}))
            self._show(f"running {tools} · turn {current.turn} · step {current.step}")
            calls = current.calls
            outcomes = await asyncio.gather(*(self._run_tool(current, call) for call in calls))
            for outcome in outcomes:
                self._take_in(outcome.label)
            waiting = [outcome.waiting for outcome in outcomes if outcome.waiting]
            current.calls = tuple(
                call
                for call, outcome in zip(calls, outcomes, strict=True)
                if outcome.waiting is not None
            )
            asked = [outcome.aside for outcome in outcomes if outcome.aside]
            for envelope in asked:
                self._state.turn += 1
                self._take_in(envelope.label)
                self._state.asides.append(
                    CurrentTurn(turn=self._state.turn, envelope=envelope, aside=True)
                )
            if waiting and not asked:
                await self._wait(current, waiting, yield_when)
                if yield_when():
                    return

    async def _answer_aside(self, yield_when: Callable[[], bool]) -> bool:
        """Take the turns that waiting calls ask for; False when one goes on in the next run."""
        while self._state.asides:
            if not await self._go_on(self._state.asides[0], yield_when):
                return False
            del self._state.asides[0]
        return True

    async def _wait(
        self, current: CurrentTurn, waiting: list[Waiting], yield_when: Callable[[], bool]
    ) -> None:
        self._attribute.set(State.WAITING)
        tools = ", ".join(sorted({planned.tool for planned in current.calls}))
        on = ", ".join(sorted({one.on for one in waiting}))
        self._show(f"waiting for {on} ({tools}) · turn {current.turn}")
        self._asking = any(one.on is WaitsFor.REPLY for one in waiting)
        seconds = min(one.seconds for one in waiting)
        with contextlib.suppress(asyncio.TimeoutError):
            await workflow.wait_condition(
                lambda: self._woken or current.interrupted or yield_when(),
                timeout=timedelta(seconds=max(seconds, MIN_WAIT)),
                timeout_summary=f"turn {current.turn} · {on} of {tools}",
            )

    async def _reply(self, current: CurrentTurn) -> None:
        """Tell the other side of an exchange that its message has its answer."""
        ended = ExchangeTurn(
            session_key=self._state.session_key,
            message_id=current.envelope.message_id,
            exchange=current.envelope.exchange or "",
            label=self._state.label,
        )
        await write(ExchangeActivities.reply, ended, f"turn {current.turn} · reply")

    def _owed(self, current: CurrentTurn) -> OwedReply:
        return OwedReply(
            session_key=self._state.session_key,
            agent=self._state.agent,
            turn=current.turn,
            message_id=current.envelope.message_id,
        )

    def _take_in(self, label: Label) -> None:
        # The one place where a session's label rises.
        self._state.label = join(self._state.label, label)

    def _show(self, doing: str) -> None:
        view.show(self._state, doing, self._supervisor.plan)

    async def _take_step(self, current: CurrentTurn, joining: Sequence[Envelope]) -> StepOutcome:
        sender = current.envelope.sender
        return await self._watch(
            workflow.start_activity_method(
                StepActivities.take_step,
                StepRequest(
                    session_key=self._state.session_key,
                    agent=self._state.agent,
                    turn=current.turn,
                    step=current.step,
                    message_id=current.envelope.message_id,
                    label=self._state.label,
                    joins=tuple(envelope.message_id for envelope in joining),
                    exchange=current.envelope.exchange,
                    aside=current.aside,
                    asked_by=sender.id if sender.kind in _SESSIONS else None,
                    trace=current.envelope.trace,
                    join_traces=tuple(each.trace for each in joining if each.trace),
                ),
                start_to_close_timeout=timedelta(seconds=self.profile.step_timeout),
                heartbeat_timeout=HEARTBEAT_TIMEOUT,
                retry_policy=RetryPolicy(
                    initial_interval=timedelta(milliseconds=200),
                    maximum_interval=timedelta(seconds=30),
                    maximum_attempts=self.profile.step_attempts + LOST_ATTEMPTS,
                ),
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                summary=view.step_summary(current, self._state.agent),
            )
        )

    async def _run_tool(self, current: CurrentTurn, planned: PlannedCall) -> ToolOutcome:
        request = ToolRequest(
            session_key=self._state.session_key,
            agent=self._state.agent,
            turn=current.turn,
            step=current.step,
            call=planned.call,
            label=self._state.label,
            aside=current.aside,
        )
        timeout = timedelta(seconds=planned.timeout) + TOOL_GRACE
        summary = view.tool_summary(current, planned.tool)
        outcome = await self._run(request, planned, timeout, summary)
        if outcome.start is not None:
            await self._supervisor.start(outcome.start)
        if outcome.queued:
            self._supervisor.look_again()
        return outcome

    async def _run(
        self, request: ToolRequest, planned: PlannedCall, timeout: timedelta, summary: str
    ) -> ToolOutcome:
        try:
            if planned.lane is Lane.LOCAL:
                return await workflow.execute_local_activity_method(
                    ToolActivities.run_tool,
                    request,
                    start_to_close_timeout=timeout,
                    retry_policy=TOOLS,
                    summary=summary,
                )
            return await self._watch(
                workflow.start_activity_method(
                    ToolActivities.run_tool,
                    request,
                    start_to_close_timeout=timeout,
                    heartbeat_timeout=HEARTBEAT_TIMEOUT,
                    retry_policy=TOOLS,
                    cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                    summary=summary,
                )
            )
        except ActivityError:
            # Every attempt died or was stopped before it could report: say so in the transcript.
            abandoned = f"{summary} · unknown outcome"
            return await write(ToolActivities.abandon_tool, request, abandoned)

    async def _watch(self, handle: workflow.ActivityHandle[Result]) -> Result:
        """Await an activity that an interrupt may cancel."""
        self._in_flight.add(handle)
        try:
            return await handle
        finally:
            self._in_flight.discard(handle)

    async def _end(self, current: CurrentTurn, state: TurnState, reason: Refusal) -> None:
        end = TurnEnd(
            session_key=self._state.session_key,
            turn=current.turn,
            message_id=current.envelope.message_id,
            state=state,
            reason=reason,
            label=self._state.label,
            exchange=current.envelope.exchange,
            aside=current.aside,
            trace=current.envelope.trace,
        )
        await write(SessionActivities.end_turn, end, f"turn {current.turn} · {state}")


def reason_of(error: ActivityError) -> Refusal:
    """Why a step failed for good, as the transcript and the sender may read it."""
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.details:
        return Refusal.model_validate(cause.details[0])
    if isinstance(cause, TimeoutError):
        return Refusal(
            code=Code.TIMEOUT,
            message=f"The model step ran out of time or its worker died: {cause.message}.",
            hint="Send the message again, or raise limits.step_timeout.",
        )
    return Refusal(code=Code.UNAVAILABLE, message=f"The step failed: {cause or error}.")
