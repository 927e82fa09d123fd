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
from perdure.store import mailbox, outbox
from perdure.store.appending import append, change
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.tables import deltas, sessions, steps, turns

_ENDED_BY = {
    TurnState.COMPLETED: EventKind.TURN_COMPLETED,
    TurnState.FAILED: EventKind.TURN_FAILED,
    TurnState.INTERRUPTED: EventKind.TURN_INTERRUPTED,
}


class Begun(Frozen):
    """A step that may call the model now: its durable attempt, from 1, and its context's epoch."""

    attempt: int
    epoch: int


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
        await self._database.write(
            outbox.append,
            request.session_key,
            EventKind.STEP_RETRYING,
            turn=request.turn,
            step=request.step,
            attempt=attempt,
            delay=round(delay, 3),
            reason=why,
        )

    async def end_turn(self, end: TurnEnd) -> None:
        """End a turn that has no answer of its own; the reason becomes its last message."""
        await self._database.write(_end_turn, end)


def close_orphans(connection: Connection, session_key: str) -> None:
    """End every running turn of a session whose workflow is gone."""
    running = connection.execute(
        select(turns).where(turns.c.session_key == session_key, turns.c.state == TurnState.RUNNING)
    ).all()
    for row in running:
        _end_with_reason(
            connection,
            TurnEnd(
                session_key=session_key,
                turn=row.turn,
                message_id=row.message_id,
                state=TurnState.FAILED,
                reason=Refusal(
                    code=Code.UNAVAILABLE,
                    message="The session's workflow was terminated during this turn.",
                    hint="Send the message again if it still matters.",
                ),
            ),
        )


def _begin_step(connection: Connection, request: StepRequest) -> Begun | StepOutcome:
    begun = {row.turn: row for row in _turns_about(connection, request)}
    turn = begun.pop(request.turn, None)
    if turn is None:
        if begun:  # another turn answered this message
            return StepOutcome(ended=TurnState(begun.popitem()[1].state))
        _start_turn(connection, request)
    step = connection.execute(select(steps).where(*_step_is(request))).one_or_none()
    if step is not None and step.outcome is not None:
        connection.execute(update(steps).where(*_step_is(request)).values(reused=step.reused + 1))
        return StepOutcome.model_validate(step.outcome)
    if turn is not None and turn.state != TurnState.RUNNING:
        return StepOutcome(ended=TurnState(turn.state))
    attempt = 1 if step is None else step.attempts + 1
    if step is None:
        key = request.model_dump(include={"session_key", "turn", "step"})
        connection.execute(insert(steps).values(**key, attempts=attempt, started_at=now()))
    else:
        connection.execute(update(steps).where(*_step_is(request)).values(attempts=attempt))
    outbox.append(
        connection,
        request.session_key,
        EventKind.STEP_STARTED,
        turn=request.turn,
        step=request.step,
        attempt=attempt,
    )
    session = connection.execute(
        select(sessions.c.epoch, sessions.c.label).where(
            sessions.c.session_key == request.session_key
        )
    ).one()
    _raise_label(connection, request, Label(session.label))
    return Begun(attempt=attempt, epoch=session.epoch)


def _commit_step(connection: Connection, request: StepRequest, answer: StepAnswer) -> StepOutcome:
    step = connection.execute(select(steps).where(*_step_is(request))).one()
    if step.outcome is not None:
        return StepOutcome.model_validate(step.outcome)
    turn = next(row for row in _turns_about(connection, request) if row.turn == request.turn)
    if turn.state != TurnState.RUNNING:
        return StepOutcome(ended=TurnState(turn.state))
    outcome = StepOutcome(calls=answer.planned, ended=answer.ended)
    answer_id = f"ans_{request.turn}_{request.step}"
    seq = append(
        connection,
        request.session_key,
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
            input_tokens=answer.usage.input_tokens,
            output_tokens=answer.usage.output_tokens,
            cost=answer.usage.cost,
            outcome=outcome.model_dump(mode="json"),
            finished_at=now(),
        )
    )
    connection.execute(
        delete(deltas).where(
            deltas.c.session_key == request.session_key, deltas.c.turn <= request.turn
        )
    )
    _count(connection, request.session_key, answer.usage)
    outbox.append(
        connection,
        request.session_key,
        EventKind.STEP_COMPLETED,
        turn=request.turn,
        step=request.step,
        message_id=answer_id,
        model=answer.model,
        usage=answer.usage.model_dump(),
        tools=[planned.tool for planned in answer.planned],
    )
    if answer.ended is not None:
        _settle(connection, turn, answer.ended, answer_id, answer.error)
    return outcome


def _end_turn(connection: Connection, end: TurnEnd) -> None:
    begun = {row.turn: row for row in _turns_about(connection, end)}
    turn = begun.get(end.turn)
    if turn is None:
        if begun:  # another turn answered this message
            return
        _start_turn(connection, end)
    elif turn.state != TurnState.RUNNING:
        return
    _end_with_reason(connection, end)


def _end_with_reason(connection: Connection, end: TurnEnd) -> None:
    answer_id = f"end_{end.turn}"
    append(
        connection,
        end.session_key,
        id=answer_id,
        turn=end.turn,
        step=0,
        role=Role.ASSISTANT,
        text=f"[{end.state}] {end.reason.message} {end.reason.hint}".strip(),
        label=end.label,
    )
    turn = next(row for row in _turns_about(connection, end) if row.turn == end.turn)
    _settle(connection, turn, end.state, answer_id, end.reason)


def _settle(
    connection: Connection,
    turn: Row[Any],
    state: TurnState,
    answer_id: str,
    error: Refusal | None,
) -> None:
    connection.execute(
        update(turns)
        .where(turns.c.session_key == turn.session_key, turns.c.turn == turn.turn)
        .values(
            state=state,
            answer_id=answer_id,
            error=None if error is None else error.model_dump(mode="json"),
            finished_at=now(),
        )
    )
    change(connection, turn.session_key, state=SessionState.IDLE)
    outbox.append(
        connection,
        turn.session_key,
        _ENDED_BY[state],
        turn=turn.turn,
        message_id=turn.message_id,
        answer_id=answer_id,
    )


def _start_turn(connection: Connection, request: StepRequest | TurnEnd) -> None:
    posted = mailbox.take(connection, request.session_key, request.message_id)
    if posted is None:
        raise NotFound(
            f"The text of message {request.message_id} is not in the mailbox.",
            "Was the store replaced under a running session? Send the message again.",
        )
    append(
        connection,
        request.session_key,
        id=request.message_id,
        turn=request.turn,
        step=0,
        role=Role.USER,
        text=posted.text,
        from_session=posted.sender_id if posted.sender_kind == SenderKind.SESSION else None,
        label=posted.label,
    )
    connection.execute(
        insert(turns).values(
            session_key=request.session_key,
            turn=request.turn,
            message_id=request.message_id,
            state=TurnState.RUNNING,
            started_at=now(),
        )
    )
    change(connection, request.session_key, state=SessionState.RUNNING, turn=request.turn)
    outbox.append(
        connection,
        request.session_key,
        EventKind.TURN_STARTED,
        turn=request.turn,
        message_id=request.message_id,
    )


def _count(connection: Connection, session_key: str, usage: Usage) -> None:
    change(
        connection,
        session_key,
        step_count=sessions.c.step_count + 1,
        input_tokens=sessions.c.input_tokens + usage.input_tokens,
        output_tokens=sessions.c.output_tokens + usage.output_tokens,
    )
    if usage.cost is not None:
        spent = connection.scalar(
            select(sessions.c.cost).where(sessions.c.session_key == session_key)
        )
        change(connection, session_key, cost=(spent or 0.0) + usage.cost)


def _raise_label(connection: Connection, request: StepRequest, current: Label) -> None:
    raised = join(current, request.label)
    if raised == current:
        return
    change(connection, request.session_key, label=raised)
    outbox.append(
        connection,
        request.session_key,
        EventKind.LABEL_RAISED,
        turn=request.turn,
        before=current,
        after=raised,
    )


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
