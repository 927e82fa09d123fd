"""Turns and steps: begun, committed, ended, each exactly once whoever retries.

Invariant: a committed step never changes, and a turn that has ended takes nothing more. The
answer, the counters and the event that tells of it are one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from perdure.audit import AuditEntry
from perdure.domain.compaction import CompactionDue
from perdure.domain.errors import Refusal
from perdure.domain.messages import Frozen, Role, ToolCall, Usage
from perdure.domain.runs import EndReason
from perdure.domain.states import EventKind, TurnState
from perdure.domain.steps import PlannedCall, StepOutcome, StepRequest, TurnEnd
from perdure.store import mailbox
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.session_writer import SessionWriter
from perdure.store.tables import messages, steps, turns
from perdure.store.trails import Trail
from perdure.store.turn_rows import (
    drop_streamed,
    end_with_reason,
    join_turn,
    settle,
    start_turn,
    turns_about,
)

# Statements are built once: building them anew costs more than running them.
_STEP_IS = (
    steps.c.session_key == bindparam("key"),
    steps.c.turn == bindparam("of_turn"),
    steps.c.step == bindparam("of_step"),
)
_READ_STEP = select(steps).where(*_STEP_IS)
_READ_TURN_AND_STEP = (
    select(turns, steps.c.outcome)
    .join(steps, (steps.c.session_key == turns.c.session_key) & (steps.c.turn == turns.c.turn))
    .where(*_STEP_IS)
)
_COUNT_REUSE = update(steps).where(*_STEP_IS).values(reused=steps.c.reused + 1)
_COUNT_ATTEMPT = update(steps).where(*_STEP_IS).values(attempts=bindparam("attempt"))
_ADD_STEP = insert(steps)
_COMMIT_STEP = (
    update(steps)
    .where(*_STEP_IS)
    .values(
        model=bindparam("by_model"),
        message_seq=bindparam("seq"),
        input_tokens=bindparam("input"),
        output_tokens=bindparam("output"),
        cost=bindparam("price"),
        outcome=bindparam("decided"),
        finished_at=bindparam("at"),
    )
)
_SAID = select(messages.c.seq).where(
    messages.c.session_key == bindparam("key"), messages.c.id == bindparam("of_message")
)


class Begun(Frozen):
    """A step that may call the model now: its durable attempt, from 1, the epoch of its context,
    how many messages the session has in all, and how many steps it has committed."""

    attempt: int
    epoch: int
    message_count: int
    step_count: int = 0


class StepAnswer(Frozen):
    """What a model step produced, ready to be committed."""

    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    planned: tuple[PlannedCall, ...] = ()
    usage: Usage = Usage()
    model: str
    raw: str | None = None
    ended: TurnState | None = None
    error: Refusal | None = None
    #: The limit of a run that ended the turn.
    reached: EndReason | None = None
    compact: CompactionDue | None = None


class Turns:
    """The writes of a turn."""

    def __init__(self, database: Database, trail: Trail) -> None:
        self._database = database
        self._trail = trail

    async def begin_step(
        self, request: StepRequest, entries: Sequence[AuditEntry] = ()
    ) -> Begun | StepOutcome:
        """Take the turn's message if need be, and count an attempt; `entries` are recorded if a
        model may be called now.

        Returns the committed outcome instead when there is one (a retry pays nothing twice), and
        an ended outcome when the turn is over or its message was answered by another turn.

        Raises:
            NotFound: when the message lies neither in the mailbox nor in the transcript.
        """
        return await self._database.write(_begin_step, self._trail, request, entries)

    async def commit_step(
        self, request: StepRequest, answer: StepAnswer, entries: Sequence[AuditEntry] = ()
    ) -> StepOutcome:
        """Append the answer, count its usage, record `entries`, and end the turn if it says so.

        A second commit of the same step, or one that comes after the turn ended, changes nothing
        and returns what was decided.
        """
        return await self._database.write(_commit_step, self._trail, request, answer, entries)

    async def retrying(self, request: StepRequest, attempt: int, delay: float, why: str) -> None:
        """Tell the outbox that a step waits `delay` seconds before its next attempt."""
        await self._database.write(_retrying, request, attempt, delay, why)

    async def end_turn(self, end: TurnEnd) -> None:
        """End a turn that has no answer of its own; the reason becomes its last message.

        A message whose text was never laid down, or was withdrawn, is reported as dropped: there
        is nothing to put into the transcript.
        """
        await self._database.write(_end_turn, end)


def _begin_step(
    connection: Connection, trail: Trail, request: StepRequest, entries: Sequence[AuditEntry]
) -> Begun | StepOutcome:
    begun = {row.turn: row for row in turns_about(connection, request)}
    turn = begun.pop(request.turn, None)
    if turn is None and begun:  # another turn answered this message
        return StepOutcome(ended=TurnState(begun.popitem()[1].state))
    step = None
    if turn is not None:
        step = connection.execute(_READ_STEP, _place(request)).one_or_none()
        if step is not None and step.outcome is not None:
            connection.execute(_COUNT_REUSE, _place(request))
            return StepOutcome.model_validate(step.outcome)
        if turn.state != TurnState.RUNNING:
            return StepOutcome(ended=TurnState(turn.state))
    posted = None
    if turn is None:
        posted = mailbox.take(connection, request.session_key, request.message_id)
        if posted is None and request.exchange is not None:
            # Whoever waited for the answer has taken the message back.
            return StepOutcome(ended=TurnState.INTERRUPTED)
        if posted is None and _said(connection, request):
            # It joined an earlier turn.
            return StepOutcome(ended=TurnState.COMPLETED)
    for entry in entries:
        trail.append(connection, entry)
    with SessionWriter(connection, request.session_key) as session:
        if turn is None:
            start_turn(session, request, posted)
        for message_id in request.joins:
            join_turn(session, request, message_id)
        attempt = 1 if step is None else step.attempts + 1
        if step is None:
            key = request.model_dump(include={"session_key", "turn", "step"})
            connection.execute(_ADD_STEP, {**key, "attempts": attempt, "started_at": now()})
        else:
            connection.execute(_COUNT_ATTEMPT, {**_place(request), "attempt": attempt})
        session.tell(EventKind.STEP_STARTED, turn=request.turn, step=request.step, attempt=attempt)
        session.raise_label(request.label, turn=request.turn, reason="message")
        return Begun(
            attempt=attempt,
            epoch=session.row.epoch,
            message_count=session.message_count,
            step_count=session.row.step_count,
        )


def _commit_step(
    connection: Connection,
    trail: Trail,
    request: StepRequest,
    answer: StepAnswer,
    entries: Sequence[AuditEntry],
) -> StepOutcome:
    turn = connection.execute(_READ_TURN_AND_STEP, _place(request)).one()
    if turn.outcome is not None:
        return StepOutcome.model_validate(turn.outcome)
    if turn.state != TurnState.RUNNING:
        return StepOutcome(ended=TurnState(turn.state))
    outcome = StepOutcome(
        calls=answer.planned,
        ended=answer.ended,
        error=None if answer.error is None else answer.error.code,
        reached=answer.reached,
        compact=answer.compact,
    )
    answer_id = f"ans_{request.turn}_{request.step}"
    usage = answer.usage
    for entry in entries:
        trail.append(connection, entry)
    with SessionWriter(connection, request.session_key) as session:
        seq = session.append(
            id=answer_id,
            turn=request.turn,
            step=request.step,
            role=Role.ASSISTANT,
            text=answer.text,
            tool_calls=answer.tool_calls,
            label=request.label,
            raw=answer.raw,
            exchange=request.exchange,
            aside=request.aside,
        )
        connection.execute(
            _COMMIT_STEP,
            {
                **_place(request),
                "by_model": answer.model,
                "seq": seq,
                "input": usage.input_tokens,
                "output": usage.output_tokens,
                "price": usage.cost,
                "decided": outcome.model_dump(mode="json"),
                "at": now(),
            },
        )
        drop_streamed(session, turn)
        row = session.row
        costs = [cost for cost in (row.cost, usage.cost) if cost is not None]
        session.change(
            step_count=row.step_count + 1,
            input_tokens=row.input_tokens + usage.input_tokens,
            output_tokens=row.output_tokens + usage.output_tokens,
            cost=sum(costs) if costs else None,
        )
        session.tell(
            EventKind.STEP_COMPLETED,
            turn=request.turn,
            step=request.step,
            message_id=answer_id,
            model=answer.model,
            usage=usage.model_dump(),
            tools=[planned.tool for planned in answer.planned],
        )
        if answer.ended is not None:
            settle(session, turn, answer.ended, answer_id, answer.error, aside=request.aside)
    return outcome


def _retrying(
    connection: Connection, request: StepRequest, attempt: int, delay: float, why: str
) -> None:
    with SessionWriter(connection, request.session_key) as session:
        session.tell(
            EventKind.STEP_RETRYING,
            turn=request.turn,
            step=request.step,
            attempt=attempt,
            delay=round(delay, 3),
            reason=why,
        )


def _end_turn(connection: Connection, end: TurnEnd) -> None:
    begun = {row.turn: row for row in turns_about(connection, end)}
    if begun and (end.turn not in begun or begun[end.turn].state != TurnState.RUNNING):
        return
    with SessionWriter(connection, end.session_key) as session:
        if not begun:
            if not mailbox.holds(connection, session.key, end.message_id):
                if end.exchange is None:
                    session.tell(
                        EventKind.MESSAGE_DROPPED, message_id=end.message_id, reason="no text"
                    )
                return
            posted = mailbox.take(connection, session.key, end.message_id)
            start_turn(session, end, posted)
            begun = {row.turn: row for row in turns_about(connection, end)}
        session.raise_label(end.label, turn=end.turn, reason="message")
        end_with_reason(
            session,
            begun[end.turn],
            end.state,
            end.reason,
            end.label,
            exchange=end.exchange,
            aside=end.aside,
        )


def _said(connection: Connection, request: StepRequest) -> bool:
    """Whether a message stands in the transcript."""
    said = {"key": request.session_key, "of_message": request.message_id}
    return connection.scalar(_SAID, said) is not None


def _place(request: StepRequest) -> dict[str, Any]:
    return {"key": request.session_key, "of_turn": request.turn, "of_step": request.step}
