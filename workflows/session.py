"""`Session`: a conversation as a workflow that never has to end.

Invariant: messages are admitted at any moment and answered in order, one turn at a time. The
run is replaced by a new one, with the whole state, whenever its history has grown: between two
steps, when no tool is in flight, however steady the traffic. No handler ever waits.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from activities.stubs import SessionActivities
from perdure.domain.envelopes import Envelope, Ticket
from perdure.domain.errors import PerdureError
from perdure.domain.labels import Label
from perdure.domain.steps import OpenSession, SessionClose, SessionReset
from workflows import view
from workflows.inbox import Inbox
from workflows.state import CurrentTurn, SessionState, SessionStatus
from workflows.stored import write
from workflows.turn import TurnEngine

#: Temporal ends a run's patience at 2,000 updates and 10,000 signals.
MAX_UPDATES = 1_500
MAX_SIGNALS = 8_000


@workflow.defn
class Session:
    """One session. Its id is `session/<key>`."""

    @workflow.init
    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._inbox = Inbox(state)
        self._engine = TurnEngine(state)
        self._turns = self._updates = self._signals = 0

    @workflow.run
    async def run(self, state: SessionState) -> None:
        """Answer messages until closed."""
        await self._open()
        while True:
            await workflow.wait_condition(self._has_work)
            if self._rollover_due():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(self._state)
            if self._state.resets:
                await self._reset()
            elif self._state.current or self._state.inbox:
                await self._turn()
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
    def deliver(self, envelope: dict[str, Any]) -> None:
        """`admit` for senders that do not wait for a ticket, such as other sessions."""
        self._signals += 1
        try:
            self._inbox.admit(Envelope.model_validate(envelope))
        except ValidationError as error:
            # There is nobody to answer, and an exception here would wedge the session.
            workflow.logger.warning("dropped a malformed envelope: %s", error)

    @workflow.update
    async def interrupt(self) -> int | None:
        """Stop the turn under way; its number, or None when none runs. Never waits."""
        self._updates += 1
        return self._engine.interrupt()

    @workflow.update
    async def reset(self, request_id: str) -> int:
        """Interrupt, discard what waits and its number, and go on with an empty context.

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
        self._engine.interrupt()
        return len(dropped)

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
        return bool(
            state.resets or state.current or state.inbox or state.closing or self._rollover_due()
        )

    def _rollover_due(self) -> bool:
        return (
            self._turns >= self._engine.profile.turns_per_run
            or self._updates >= MAX_UPDATES
            or self._signals >= MAX_SIGNALS
            or workflow.info().is_continue_as_new_suggested()
        )

    async def _open(self) -> None:
        profile = await write(
            SessionActivities.open_session,
            OpenSession(
                session_key=self._state.session_key,
                agent=self._state.agent,
                fresh=not self._state.opened,
            ),
            "open the session",
        )
        self._engine.profile = profile
        self._inbox.limit = profile.inbox_limit
        self._inbox.clearance = profile.clearance
        if not self._state.opened:
            self._state.opened = True
            self._state.agent = profile.agent
            self._state.turn = profile.turn
            self._state.label = profile.label
            for envelope in profile.pending:
                self._inbox.admit(envelope)
        view.show(self._state, "idle")

    async def _turn(self) -> None:
        if self._state.current is None:
            self._engine.begin(CurrentTurn(turn=self._state.turn + 1, envelope=self._inbox.take()))
        await self._engine.run(yield_when=self._rollover_due)
        if self._state.current is None:
            self._turns += 1
            if not self._inbox:
                self._engine.rest()

    async def _reset(self) -> None:
        if self._state.current is not None:
            # Interrupted already: this only ends it.
            await self._engine.run(yield_when=self._rollover_due)
        reset = self._state.resets[0]
        await write(SessionActivities.reset_session, reset, "reset")
        self._state.resets.remove(reset)
        self._state.label = Label.PUBLIC

    async def _close(self) -> bool:
        """Close at a quiet moment; False when something came meanwhile, which reopens."""
        request = SessionClose(session_key=self._state.session_key)
        await write(SessionActivities.close_session, request, "close")
        self._state.closing = False
        if self._state.inbox or self._state.resets:
            await self._open()
            return False
        self._engine.close()
        view.show(self._state, "closed")
        return True


def _refused(error: PerdureError) -> ApplicationError:
    refusal = error.refusal
    return ApplicationError(refusal.message, refusal, type=refusal.code, non_retryable=True)
