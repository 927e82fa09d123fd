"""`Conversation`: what every kind of session is, a workflow that never has to end.

Invariant: messages are admitted at any moment and answered in order, one turn at a time. The
run is replaced by a new one, with the whole state, whenever its history has grown: between two
steps, when no tool is in flight, however steady the traffic. No handler ever waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from activities.stubs import SessionActivities
from perdure.domain.envelopes import Envelope, SenderKind, Ticket
from perdure.domain.errors import Code, PerdureError
from perdure.domain.labels import Label
from perdure.domain.runs import EndReason
from perdure.domain.steps import OpenSession, SessionClose, SessionProfile, SessionReset
from workflows import view
from workflows.compaction import Compaction
from workflows.inbox import Inbox
from workflows.refusals import Refusals
from workflows.remembering import Remembering
from workflows.replying import Replying
from workflows.state import CurrentTurn, SessionState, SessionStatus
from workflows.stored import write
from workflows.supervisor import Supervisor
from workflows.turn import TurnEngine

#: Temporal ends a run's patience at 2,000 updates and 10,000 signals.
MAX_UPDATES = 1_500
MAX_SIGNALS = 8_000


class Conversation:
    """The handlers and the loop of a session. Its id is `session/<key>`."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._inbox = Inbox(state)
        self._supervisor = Supervisor(state, self._inbox, self._stop, self._look_again)
        self._compaction = Compaction(state)
        self._remembering = Remembering(state)
        self._refusals = Refusals(state)
        self._replying = Replying(state)
        self._engine = TurnEngine(state, self._inbox, self._supervisor)
        self._turns = self._updates = self._signals = 0

    async def converse(self) -> None:
        """Answer messages until closed."""
        await self._open()
        while not self._dormant():
            await workflow.wait_condition(self._has_work)
            if self._rollover_due():
                await self._rest()
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(self._state)
            if self._state.resets:
                await self._reset()
            elif self._state.current or self._state.inbox:
                await self._turn()
            elif self._unfinished():
                await self._finish()
            elif await self._close():
                return

    # Ways in ---------------------------------------------------------------------------------

    @workflow.update
    async def admit(self, envelope: Envelope) -> Ticket:
        """Queue the message that lies in the mailbox under the envelope's id. Never waits."""
        self._updates += 1
        position = len(self._inbox) + (self._state.current is not None)
        fresh = self._inbox.admit(envelope)
        return Ticket(
            message_id=envelope.message_id,
            session_key=self._state.session_key,
            position=position if fresh else 0,
            duplicate=not fresh,
        )

    @admit.validator
    def _check_admission(self, envelope: Envelope) -> None:
        try:
            self._inbox.check(envelope)
        except PerdureError as error:
            raise _refused(error) from error

    @workflow.signal
    def deliver(self, *arguments: Any) -> None:
        """`admit(envelope)` for senders that wait for no ticket, such as other sessions.

        An exception would wedge the session for ever: what is malformed is dropped with a line
        in the log, what may not come in is refused.
        """
        self._signals += 1
        try:
            (argument,) = arguments
            envelope = Envelope.model_validate(argument)
        except ValueError:
            workflow.logger.warning("dropped a signal that holds no envelope")
            return
        try:
            self._inbox.check(envelope)
            self._inbox.admit(envelope)
        except PerdureError as error:
            self._refuse(envelope, error.code)

    @workflow.update
    async def interrupt(self) -> int | None:
        """Stop the turn under way; its number, or None when none runs. Never waits."""
        self._updates += 1
        return self._engine.interrupt()

    @workflow.signal
    def approval_decided(self, *_: Any) -> None:
        """Look at the store again: a person has decided on a call that waits.

        A signal is kept while no worker runs, and nobody needs an answer.
        """
        self._signals += 1
        self._engine.look_again()

    @workflow.signal
    def wake(self, *_: Any) -> None:
        """Look at the store again: a run has ended or is to stop, or a reply has come."""
        self._signals += 1
        self._engine.look_again()
        self._supervisor.look_again()

    @workflow.update
    async def reset(self, request_id: str) -> None:
        """Interrupt, discard what waits, and go on with an empty context.

        Never waits: the reset is done when the outbox says so, with `request_id`.
        """
        self._updates += 1
        dropped = self._inbox.clear()
        self._state.resets.append(
            SessionReset(
                session_key=self._state.session_key,
                request_id=request_id,
                dropped=tuple(envelope.message_id for envelope in dropped),
            )
        )
        for envelope in dropped:
            if envelope.exchange is not None:
                self._refusals.add(envelope, "reset")
        self._engine.interrupt()

    @reset.validator
    def _check_request(self, request_id: str) -> None:
        # A call without its argument is refused here; in the handler it would fail the workflow
        # task for ever.
        ...

    @workflow.update
    async def close(self) -> None:
        """Answer what was admitted, then end the workflow. A later message opens it again.

        Never waits: the session is closed when the outbox says so.
        """
        self._updates += 1
        self._state.closing = True

    @workflow.query
    def status(self) -> SessionStatus:
        """What the session is doing now."""
        current = self._state.current
        return SessionStatus(
            session_key=self._state.session_key,
            agent=self._state.agent,
            state="running" if current else "idle",
            turn=self._state.turn,
            step=current.step if current else 0,
            inbox=len(self._inbox),
            label=self._state.label,
        )

    @workflow.query
    def inbox(self) -> list[Envelope]:
        """The envelopes that wait, oldest first."""
        return self._state.inbox

    # What happens next -----------------------------------------------------------------------

    def _has_work(self) -> bool:
        state = self._state
        # Runs in the queue are given their place, or their time is over, before it closes; and
        # what is to be remembered is.
        closing = state.closing and not (
            self._supervisor.plan.queued or state.unremembered or state.owed
        )
        waits = bool(state.resets or state.current or state.inbox)
        return waits or closing or self._rollover_due() or self._unfinished()

    def _rollover_due(self) -> bool:
        if self._compaction.under_way:
            return False
        return (
            self._turns >= self._engine.profile.turns_per_run
            or self._updates >= MAX_UPDATES
            or self._signals >= MAX_SIGNALS
            or workflow.info().is_continue_as_new_suggested()
        )

    async def _open(self) -> None:
        state = self._state
        profile = await write(
            SessionActivities.open_session,
            OpenSession(session_key=state.session_key, agent=state.agent, fresh=not state.opened),
            "open the session",
        )
        self._engine.profile = profile
        state.inbox_limit = profile.inbox_limit
        state.clearance = profile.clearance
        state.intake = profile.intake
        if profile.run is not None:
            state.run_id, state.parent_key = profile.run.run_id, profile.run.parent_key
        if not state.opened:
            state.opened = True
            state.agent = profile.agent
            state.turn = profile.turn
            state.label = profile.label
            self._take_over(profile.pending)
        self._opened(profile)
        self._supervisor.open(profile)
        self._refusals.open()
        self._remembering.on = profile.remembers
        self._remembering.begin()
        self._replying.begin()
        view.show(state, "idle", self._supervisor.plan)

    def _take_over(self, pending: Sequence[Envelope]) -> None:
        """Queue what a lost run left behind, before what was sent to this one."""
        if not self._state.resets:
            refused = self._inbox.take_over(pending)
        else:
            refused = self._inbox.take_over(())
            self._discard(pending)
        for envelope in refused:
            self._refuse(envelope, Code.DENIED)

    def _refuse(self, envelope: Envelope, reason: Code) -> None:
        # What a person or a program sends is theirs to take back.
        if envelope.sender.kind is SenderKind.SESSION:
            self._refusals.add(envelope, reason)
        else:
            workflow.logger.warning("dropped %s: %s", envelope.message_id, reason)

    def _discard(self, pending: Sequence[Envelope]) -> None:
        # The reset came before the past was known, and meant it too.
        reset = self._state.resets[0]
        left = tuple(envelope.message_id for envelope in pending if not self._inbox.knows(envelope))
        self._state.resets[0] = reset.model_copy(update={"dropped": (*reset.dropped, *left)})

    # What a kind of session may add ----------------------------------------------------------

    def _opened(self, profile: SessionProfile) -> None:
        """The session knows its past and its limits."""

    def _stop(self, reason: EndReason) -> None:
        """The run that this session is has to stop; a session that is no run has none."""

    async def _turn_ended(self) -> None:
        """A turn has come to its end, and nothing else was begun."""

    def _dormant(self) -> bool:
        """Whether the session is not to begin yet: its workflow ends, and is started again."""
        return False

    def _unfinished(self) -> bool:
        """Whether something is to be finished now that no turn will."""
        return False

    async def _finish(self) -> None:
        """Finish what no turn will."""

    async def _begin_anew(self) -> None:
        """The session is about to forget; no turn is under way."""

    def _look_again(self) -> None:
        self._engine.look_again()

    async def _turn(self) -> None:
        current = self._state.current
        if current is None:
            current = CurrentTurn(turn=self._state.turn + 1, envelope=self._inbox.take())
            self._engine.begin(current)
        if self._state.stop is not None:
            self._engine.interrupt()
        await self._engine.run(yield_when=self._rollover_due)
        if self._state.current is None:
            self._turns += 1
            self._compaction.begin()
            self._remembering.begin(current.turn)
            self._replying.begin()
            await self._turn_ended()
            if not self._inbox:
                self._engine.rest()

    async def _reset(self) -> None:
        current = self._state.current
        if current is not None:
            # Interrupted already: this only ends it.
            await self._engine.run(yield_when=self._rollover_due)
            self._replying.begin()
        await self._begin_anew()
        reset = self._state.resets[0]
        await write(SessionActivities.reset_session, reset, "reset")
        self._state.resets.remove(reset)
        self._state.label = Label.PUBLIC

    async def _close(self) -> bool:
        """Close at a quiet moment; False when something came meanwhile, which reopens."""
        request = SessionClose(session_key=self._state.session_key)
        # A `close` that comes during the write waits for an event of its own.
        self._state.closing = False
        await write(SessionActivities.close_session, request, "close")
        await self._rest()
        if self._state.inbox or self._state.resets or self._state.closing or self._state.woken:
            await self._open()
            return False
        self._engine.close()
        view.show(self._state, "closed", self._supervisor.plan)
        return True

    async def _rest(self) -> None:
        await self._supervisor.rest()
        await self._refusals.rest()
        await self._remembering.rest()
        await self._replying.rest()


def _refused(error: PerdureError) -> ApplicationError:
    refusal = error.refusal
    return ApplicationError(refusal.message, refusal, type=refusal.code, non_retryable=True)
