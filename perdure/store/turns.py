"""Turns and steps: begun, committed, ended, each exactly once whoever retries.

Invariant: a committed step never changes, and a turn that has ended takes nothing more. The
answer, the counters and the event that tells of it are one transaction.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, delete, insert, or_, select, update

from perdure.domain.envelopes import SenderKind
from perdure.domain.errors import Code, NotFound, Refusal
from perdure.domain.labels import Label, join
from perdure.domain.messages import Frozen, Role, ToolCall, Usage
from perdure.domain.states import EventKind, SessionState, TurnState
from perdure.domain.steps import PlannedCall, StepOutcome, StepRequest, TurnEnd
from perdure.store import mailbox
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.session_writer import SessionWriter
from perdure.store.tables import deltas, steps, turns

_ENDED_BY = {
    TurnState.COMPLETED: EventKind.TURN_COMPLETED,
    TurnState.FAILED: EventKind.TURN_FAILED,
    TurnState.INTERRUPTED: EventKind.TURN_INTERRUPTED,
}


class Begun(Frozen):
    """A step that may call the model now: its durable attempt, from 1, the epoch of its context,
    and how many messages the session has in all."""

    attempt: int
    epoch: int
    message_count: int


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


class Turns:
    """The writes of a turn."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin_step(self, request: StepRequest) -> Begun | StepOutcome:
        """Take the turn's message if need be, and count an attempt.

        Returns the committed outcome instead when there is one (a retry pays nothing twice), and
        an ended outcome when the turn is over or its message was answered by another turn.

        Raises:
            NotFound: when the message lies neither in the mailbox nor in the transcript.
        """
        return await self._database.write(_begin_step, request)

    async def commit_step(self, request: StepRequest, answer: StepAnswer) -> StepOutcome:
        """Append the answer, count its usage, and end the turn if it says so.

        A second commit of the same step, or one that comes after the turn ended, changes nothing
        and returns what was decided.
        """
        return await self._database.write(_commit_step, request, answer)

    async def retrying(self, request: StepRequest, attempt: int, delay: float, why: str) -> None:
        """Tell the outbox that a step waits `delay` seconds before its next attempt."""
        await self._database.write(_retrying, request, attempt, delay, why)

    async def end_turn(self, end: TurnEnd) -> None:
        """End a turn that has no answer of its own; the reason becomes its last message.

        A message whose text was never laid down, or was withdrawn, is reported as dropped: there
        is nothing to put into the transcript.
        """
        await self._database.write(_end_turn, end)


def close_orphans(session: SessionWriter) -> None:
    """End every running turn of a session whose workflow is gone."""
    running = session.connection.execute(
        select(turns).where(turns.c.session_key == session.key, turns.c.state == TurnState.RUNNING)
    ).all()
    for turn in running:
        _end_with_reason(
            session,
            turn,
            TurnState.FAILED,
            Refusal(
                code=Code.UNAVAILABLE,
                message="The session's workflow was terminated during this turn.",
                hint="Send the message again if it still matters.",
            ),
            Label(session.row.label),
        )


def _begin_step(connection: Connection, request: StepRequest) -> Begun | StepOutcome:
    begun = {row.turn: row for row in _turns_about(connection, request)}
    turn = begun.pop(request.turn, None)
    if turn is None and begun:  # another turn answered this message
        return StepOutcome(ended=TurnState(begun.popitem()[1].state))
    step = None
    if turn is not None:
        step = connection.execute(select(steps).where(*_step_is(request))).one_or_none()
        if step is not None and step.outcome is not None:
            connection.execute(
                update(steps).where(*_step_is(request)).values(reused=step.reused + 1)
            )
            return StepOutcome.model_validate(step.outcome)
        if turn.state != TurnState.RUNNING:
            return StepOutcome(ended=TurnState(turn.state))
    with SessionWriter(connection, request.session_key) as session:
        if turn is None:
            _start_turn(session, request)
        attempt = 1 if step is None else step.attempts + 1
        if step is None:
            key = request.model_dump(include={"session_key", "turn", "step"})
            connection.execute(insert(steps).values(**key, attempts=attempt, started_at=now()))
        else:
            connection.execute(update(steps).where(*_step_is(request)).values(attempts=attempt))
        session.tell(EventKind.STEP_STARTED, turn=request.turn, step=request.step, attempt=attempt)
        _raise_label(session, request)
        return Begun(
            attempt=attempt,
            epoch=session.row.epoch,
            message_count=session.row.message_count + (turn is None),
        )


def _commit_step(connection: Connection, request: StepRequest, answer: StepAnswer) -> StepOutcome:
    turn = connection.execute(
        select(turns, steps.c.outcome)
        .join(steps, (steps.c.session_key == turns.c.session_key) & (steps.c.turn == turns.c.turn))
        .where(*_step_is(request))
    ).one()
    if turn.outcome is not None:
        return StepOutcome.model_validate(turn.outcome)
    if turn.state != TurnState.RUNNING:
        return StepOutcome(ended=TurnState(turn.state))
    outcome = StepOutcome(
        calls=answer.planned,
        ended=answer.ended,
        error=None if answer.error is None else answer.error.code,
    )
    answer_id = f"ans_{request.turn}_{request.step}"
    usage = answer.usage
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
        )
        connection.execute(
            update(steps)
            .where(*_step_is(request))
            .values(
                model=answer.model,
                message_seq=seq,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cost=usage.cost,
                outcome=outcome.model_dump(mode="json"),
                finished_at=now(),
            )
        )
        _drop_streamed(session, turn)
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
            _settle(session, turn, answer.ended, answer_id, answer.error)
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
    begun = {row.turn: row for row in _turns_about(connection, end)}
    if begun and (end.turn not in begun or begun[end.turn].state != TurnState.RUNNING):
        return
    with SessionWriter(connection, end.session_key) as session:
        if not begun:
            if not mailbox.holds(connection, session.key, end.message_id):
                session.tell(EventKind.MESSAGE_DROPPED, message_id=end.message_id, reason="no text")
                return
            _start_turn(session, end)
            begun = {row.turn: row for row in _turns_about(connection, end)}
        _raise_label(session, end)
        _end_with_reason(session, begun[end.turn], end.state, end.reason, end.label)


def _end_with_reason(
    session: SessionWriter, turn: Row[Any], state: TurnState, reason: Refusal, label: Label
) -> None:
    answer_id = f"end_{turn.turn}"
    _drop_streamed(session, turn)
    session.append(
        id=answer_id,
        turn=turn.turn,
        step=0,
        role=Role.ASSISTANT,
        text=f"[{state}] {reason.message} {reason.hint}".strip(),
        label=label,
    )
    _settle(session, turn, state, answer_id, reason)


def _drop_streamed(session: SessionWriter, turn: Row[Any]) -> None:
    """What was streamed up to now stands in the transcript, or is void."""
    session.connection.execute(
        delete(deltas).where(deltas.c.session_key == session.key, deltas.c.turn <= turn.turn)
    )


def _settle(
    session: SessionWriter,
    turn: Row[Any],
    state: TurnState,
    answer_id: str,
    error: Refusal | None,
) -> None:
    session.connection.execute(
        update(turns)
        .where(turns.c.session_key == session.key, turns.c.turn == turn.turn)
        .values(
            state=state,
            answer_id=answer_id,
            error=None if error is None else error.model_dump(mode="json"),
            finished_at=now(),
        )
    )
    session.change(state=SessionState.IDLE)
    session.tell(_ENDED_BY[state], turn=turn.turn, message_id=turn.message_id, answer_id=answer_id)


def _start_turn(session: SessionWriter, request: StepRequest | TurnEnd) -> None:
    posted = mailbox.take(session.connection, session.key, request.message_id)
    if posted is None:
        raise NotFound(
            f"The text of message {request.message_id} is not in the mailbox.",
            "Was the store replaced under a running session? Send the message again.",
        )
    session.append(
        id=request.message_id,
        turn=request.turn,
        step=0,
        role=Role.USER,
        text=posted.text,
        from_session=posted.sender_id if posted.sender_kind == SenderKind.SESSION else None,
        label=posted.label,
    )
    session.connection.execute(
        insert(turns).values(
            session_key=session.key,
            turn=request.turn,
            message_id=request.message_id,
            state=TurnState.RUNNING,
            started_at=now(),
        )
    )
    session.change(state=SessionState.RUNNING, turn=request.turn)
    session.tell(EventKind.TURN_STARTED, turn=request.turn, message_id=request.message_id)


def _raise_label(session: SessionWriter, request: StepRequest | TurnEnd) -> None:
    current = Label(session.row.label)
    raised = join(current, request.label)
    if raised != current:
        session.change(label=raised)
        session.tell(EventKind.LABEL_RAISED, turn=request.turn, before=current, after=raised)


def _turns_about(connection: Connection, request: StepRequest | TurnEnd) -> list[Row[Any]]:
    """The turn of that number and the turn of that message: the same one, or a repeated message."""
    return list(
        connection.execute(
            select(turns).where(
                turns.c.session_key == request.session_key,
                or_(turns.c.turn == request.turn, turns.c.message_id == request.message_id),
            )
        )
    )


def _step_is(request: StepRequest) -> tuple[Any, ...]:
    return (
        steps.c.session_key == request.session_key,
        steps.c.turn == request.turn,
        steps.c.step == request.step,
    )
