"""Turns and steps: begun, committed, ended, each exactly once whoever retries.

Invariant: a committed step never changes, and a turn that has ended takes nothing more. The
answer, the counters and the event that tells of it are one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from perdure.domain.envelopes import SenderKind
from perdure.domain.errors import NotFound, Refusal
from perdure.domain.labels import Label, join
from perdure.domain.messages import Frozen, Role, ToolCall, Usage
from perdure.domain.states import EventKind, SessionState, TurnState
from perdure.domain.steps import PlannedCall, StepOutcome, StepRequest, TurnEnd
from perdure.store import mailbox, outbox
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.tables import deltas, messages, sessions, steps, turns

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
        async with self._database.write() as connection:
            turn = await _turn(connection, request.session_key, request.turn)
            if turn is None:
                answered = await _turn_of_message(connection, request)
                if answered is not None:
                    return StepOutcome(ended=TurnState(answered.state))
                await _start_turn(connection, request)
            step = (await connection.execute(select(steps).where(*_step_is(request)))).one_or_none()
            if step is not None and step.outcome is not None:
                await connection.execute(
                    update(steps).where(*_step_is(request)).values(reused=step.reused + 1)
                )
                return StepOutcome.model_validate(step.outcome)
            if turn is not None and turn.state != TurnState.RUNNING:
                return StepOutcome(ended=TurnState(turn.state))
            attempt = 1 if step is None else step.attempts + 1
            if step is None:
                await connection.execute(
                    insert(steps).values(
                        session_key=request.session_key,
                        turn=request.turn,
                        step=request.step,
                        attempts=1,
                        started_at=now(),
                    )
                )
            else:
                await connection.execute(
                    update(steps).where(*_step_is(request)).values(attempts=attempt)
                )
            await _raise_label(connection, request.session_key, request.label, request.turn)
            await outbox.append(
                connection,
                request.session_key,
                EventKind.STEP_STARTED,
                turn=request.turn,
                step=request.step,
                attempt=attempt,
            )
            epoch = await connection.scalar(
                select(sessions.c.epoch).where(sessions.c.session_key == request.session_key)
            )
            return Begun(attempt=attempt, epoch=epoch or 0)

    async def commit_step(self, request: StepRequest, answer: StepAnswer) -> StepOutcome:
        """Append the answer, count its usage, and end the turn if it says so.

        A second commit of the same step, or one that comes after the turn ended, changes nothing
        and returns what was decided.
        """
        async with self._database.write() as connection:
            step = (await connection.execute(select(steps).where(*_step_is(request)))).one()
            if step.outcome is not None:
                return StepOutcome.model_validate(step.outcome)
            turn = await _turn(connection, request.session_key, request.turn)
            if turn is None or turn.state != TurnState.RUNNING:
                return StepOutcome(ended=TurnState(turn.state) if turn else TurnState.FAILED)
            outcome = StepOutcome(calls=answer.planned, ended=answer.ended)
            answer_id = f"ans_{request.turn}_{request.step}"
            seq = await _append(
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
            await connection.execute(
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
            await _count(connection, request.session_key, answer.usage)
            await connection.execute(
                deltas.delete().where(
                    deltas.c.session_key == request.session_key, deltas.c.turn <= request.turn
                )
            )
            await outbox.append(
                connection,
                request.session_key,
                EventKind.STEP_COMPLETED,
                turn=request.turn,
                step=request.step,
                message_id=answer_id,
                model=answer.model,
                usage=answer.usage.model_dump(),
                tools=[call.tool for call in answer.planned],
            )
            if answer.ended is not None:
                await _settle(
                    connection,
                    request.session_key,
                    request.turn,
                    answer.ended,
                    answer_id,
                    answer.error,
                )
            return outcome

    async def retrying(self, request: StepRequest, attempt: int, delay: float, why: str) -> None:
        """Tell the outbox that a step waits `delay` seconds before its next attempt."""
        async with self._database.write() as connection:
            await outbox.append(
                connection,
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
        async with self._database.write() as connection:
            turn = await _turn(connection, end.session_key, end.turn)
            if turn is None:
                await _start_turn(connection, end)
            elif turn.state != TurnState.RUNNING:
                return
            await _end_with_reason(connection, end)


async def close_orphans(connection: AsyncConnection, session_key: str) -> None:
    """End every running turn of a session whose workflow is gone."""
    for row in (
        await connection.execute(
            select(turns).where(
                turns.c.session_key == session_key, turns.c.state == TurnState.RUNNING
            )
        )
    ).all():
        await _end_with_reason(
            connection,
            TurnEnd(
                session_key=session_key,
                turn=row.turn,
                message_id=row.message_id,
                state=TurnState.FAILED,
                reason=Refusal(
                    code="unavailable",
                    message="The session's workflow was terminated during this turn.",
                    hint="Send the message again if it still matters.",
                ),
            ),
        )


async def _end_with_reason(connection: AsyncConnection, end: TurnEnd) -> None:
    answer_id = f"end_{end.turn}"
    await _append(
        connection,
        end.session_key,
        id=answer_id,
        turn=end.turn,
        step=0,
        role=Role.ASSISTANT,
        text=f"[{end.state}] {end.reason.message} {end.reason.hint}".strip(),
        label=end.label,
    )
    await _settle(connection, end.session_key, end.turn, end.state, answer_id, end.reason)


async def _settle(
    connection: AsyncConnection,
    session_key: str,
    turn: int,
    state: TurnState,
    answer_id: str,
    error: Refusal | None,
) -> None:
    await connection.execute(
        update(turns)
        .where(turns.c.session_key == session_key, turns.c.turn == turn)
        .values(
            state=state,
            answer_id=answer_id,
            error=None if error is None else error.model_dump(mode="json"),
            finished_at=now(),
        )
    )
    await connection.execute(
        update(sessions)
        .where(sessions.c.session_key == session_key)
        .values(state=SessionState.IDLE)
    )
    message_id = await connection.scalar(
        select(turns.c.message_id).where(turns.c.session_key == session_key, turns.c.turn == turn)
    )
    await outbox.append(
        connection,
        session_key,
        _ENDED_BY[state],
        turn=turn,
        message_id=message_id,
        answer_id=answer_id,
    )


async def _start_turn(connection: AsyncConnection, request: StepRequest | TurnEnd) -> None:
    posted = await mailbox.take(connection, request.session_key, request.message_id)
    if posted is None:
        raise NotFound(
            f"The text of message {request.message_id} is not in the mailbox.",
            "Was the store replaced under a running session? Send the message again.",
        )
    from_session = posted.sender_id if posted.sender_kind == SenderKind.SESSION else None
    await _append(
        connection,
        request.session_key,
        id=request.message_id,
        turn=request.turn,
        step=0,
        role=Role.USER,
        text=posted.text,
        from_session=from_session,
        label=posted.label,
    )
    await connection.execute(
        insert(turns).values(
            session_key=request.session_key,
            turn=request.turn,
            message_id=request.message_id,
            state=TurnState.RUNNING,
            started_at=now(),
        )
    )
    await connection.execute(
        update(sessions)
        .where(sessions.c.session_key == request.session_key)
        .values(state=SessionState.RUNNING, turn=request.turn)
    )
    await outbox.append(
        connection,
        request.session_key,
        EventKind.TURN_STARTED,
        turn=request.turn,
        message_id=request.message_id,
    )


async def _append(
    connection: AsyncConnection,
    session_key: str,
    *,
    tool_calls: Sequence[ToolCall] = (),
    **message: Any,
) -> int:
    """Append a message and keep the next numbers free, one for each tool call's result."""
    session = (
        await connection.execute(
            select(sessions.c.next_seq, sessions.c.epoch).where(
                sessions.c.session_key == session_key
            )
        )
    ).one()
    await connection.execute(
        insert(messages).values(
            tool_calls=[call.model_dump(mode="json") for call in tool_calls],
            **message,
            session_key=session_key,
            seq=session.next_seq,
            epoch=session.epoch,
            at=now(),
        )
    )
    await connection.execute(
        update(sessions)
        .where(sessions.c.session_key == session_key)
        .values(
            next_seq=session.next_seq + 1 + len(tool_calls),
            message_count=sessions.c.message_count + 1,
            last_activity=now(),
        )
    )
    return int(session.next_seq)


async def _count(connection: AsyncConnection, session_key: str, usage: Usage) -> None:
    changes: dict[str, Any] = {
        "step_count": sessions.c.step_count + 1,
        "input_tokens": sessions.c.input_tokens + usage.input_tokens,
        "output_tokens": sessions.c.output_tokens + usage.output_tokens,
    }
    if usage.cost is not None:
        row = await connection.scalar(
            select(sessions.c.cost).where(sessions.c.session_key == session_key)
        )
        changes["cost"] = (row or 0.0) + usage.cost
    await connection.execute(
        update(sessions).where(sessions.c.session_key == session_key).values(changes)
    )


async def _raise_label(
    connection: AsyncConnection, session_key: str, label: Label, turn: int
) -> None:
    current = Label(
        await connection.scalar(
            select(sessions.c.label).where(sessions.c.session_key == session_key)
        )
    )
    raised = join(current, label)
    if raised != current:
        await connection.execute(
            update(sessions).where(sessions.c.session_key == session_key).values(label=raised)
        )
        await outbox.append(
            connection,
            session_key,
            EventKind.LABEL_RAISED,
            turn=turn,
            before=current,
            after=raised,
        )


async def _turn(connection: AsyncConnection, session_key: str, turn: int) -> Row[Any] | None:
    return (
        await connection.execute(
            select(turns).where(turns.c.session_key == session_key, turns.c.turn == turn)
        )
    ).one_or_none()


async def _turn_of_message(connection: AsyncConnection, request: StepRequest) -> Row[Any] | None:
    return (
        await connection.execute(
            select(turns).where(
                turns.c.session_key == request.session_key,
                turns.c.message_id == request.message_id,
            )
        )
    ).one_or_none()


def _step_is(request: StepRequest) -> tuple[Any, ...]:
    return (
        steps.c.session_key == request.session_key,
        steps.c.turn == request.turn,
        steps.c.step == request.step,
    )
