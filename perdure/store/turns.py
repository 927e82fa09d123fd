"""Turns and steps: begun, committed, ended, each exactly once whoever retries.

Invariant: a committed step never changes, and a turn that has ended takes nothing more. The
answer, the counters and the event that tells of it are one transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, or_, select, update

from perdure.audit import AuditEntry
from perdure.domain.compaction import CompactionDue
from perdure.domain.envelopes import SenderKind
from perdure.domain.errors import Code, NotFound, Refusal
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen, Role, ToolCall, Usage
from perdure.domain.runs import EndReason
from perdure.domain.states import EventKind, SessionState, TurnState
from perdure.domain.steps import PlannedCall, StepOutcome, StepRequest, TurnEnd
from perdure.store import approvals, exchange_ends, mailbox, waits
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.session_writer import SessionWriter
from perdure.store.tables import deltas, messages, steps, turns
from perdure.store.trails import Trail

_ENDED_BY = {
    TurnState.COMPLETED: EventKind.TURN_COMPLETED,
    TurnState.FAILED: EventKind.TURN_FAILED,
    TurnState.INTERRUPTED: EventKind.TURN_INTERRUPTED,
}


# Statements are built once: building them anew costs more than running them.
_STEP_IS = (
    steps.c.session_key == bindparam("key"),
    steps.c.turn == bindparam("of_turn"),
    steps.c.step == bindparam("of_step"),
)
_TURN_IS = (turns.c.session_key == bindparam("key"), turns.c.turn == bindparam("of_turn"))
_TURNS_ABOUT = select(turns).where(
    turns.c.session_key == bindparam("key"),
    or_(turns.c.turn == bindparam("of_turn"), turns.c.message_id == bindparam("of_message")),
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
_ADD_TURN = insert(turns)
_END_TURN = (
    update(turns)
    .where(*_TURN_IS)
    .values(
        state=bindparam("ended"),
        answer_id=bindparam("answer"),
        error=bindparam("why"),
        finished_at=bindparam("at"),
    )
)
_SAID = select(messages.c.seq).where(
    messages.c.session_key == bindparam("key"), messages.c.id == bindparam("of_message")
)
_DROP_DELTAS = delete(deltas).where(
    deltas.c.session_key == bindparam("key"), deltas.c.turn <= bindparam("of_turn")
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


def _begin_step(
    connection: Connection, trail: Trail, request: StepRequest, entries: Sequence[AuditEntry]
) -> Begun | StepOutcome:
    begun = {row.turn: row for row in _turns_about(connection, request)}
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
            _start_turn(session, request, posted)
        for message_id in request.joins:
            _join(session, request, message_id)
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
        connection.execute(_DROP_DELTAS, {"key": session.key, "of_turn": turn.turn})
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
            _settle(session, turn, answer.ended, answer_id, answer.error, aside=request.aside)
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
                if end.exchange is None:
                    session.tell(
                        EventKind.MESSAGE_DROPPED, message_id=end.message_id, reason="no text"
                    )
                return
            posted = mailbox.take(connection, session.key, end.message_id)
            _start_turn(session, end, posted)
            begun = {row.turn: row for row in _turns_about(connection, end)}
        session.raise_label(end.label, turn=end.turn, reason="message")
        _end_with_reason(
            session,
            begun[end.turn],
            end.state,
            end.reason,
            end.label,
            exchange=end.exchange,
            aside=end.aside,
        )


def _end_with_reason(
    session: SessionWriter,
    turn: Row[Any],
    state: TurnState,
    reason: Refusal,
    label: Label,
    *,
    exchange: str | None = None,
    aside: bool = False,
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
        exchange=exchange,
        aside=aside,
    )
    _settle(session, turn, state, answer_id, reason, aside=aside)


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
    *,
    aside: bool,
) -> None:
    session.connection.execute(
        _END_TURN,
        {
            "key": session.key,
            "of_turn": turn.turn,
            "ended": state,
            "answer": answer_id,
            "why": None if error is None else error.model_dump(mode="json"),
            "at": now(),
        },
    )
    approvals.withdraw(session, turn.turn)
    waits.close(session, turn.turn)
    exchange_ends.abandon(session, turn.turn)
    # Beside a turn taken aside, another one is under way.
    session.change(state=SessionState.RUNNING if aside else SessionState.IDLE)
    session.tell(_ENDED_BY[state], turn=turn.turn, message_id=turn.message_id, answer_id=answer_id)


def _start_turn(
    session: SessionWriter, request: StepRequest | TurnEnd, posted: Row[Any] | None
) -> None:
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
        exchange=posted.exchange,
        aside=request.aside,
    )
    session.connection.execute(
        _ADD_TURN,
        {
            "session_key": session.key,
            "turn": request.turn,
            "message_id": request.message_id,
            "state": TurnState.RUNNING,
            "started_at": now(),
        },
    )
    session.change(state=SessionState.RUNNING, turn=request.turn)
    session.tell(EventKind.TURN_STARTED, turn=request.turn, message_id=request.message_id)


def _join(session: SessionWriter, request: StepRequest, message_id: str) -> None:
    """Put a message into the turn under way, once."""
    posted = mailbox.take(session.connection, session.key, message_id)
    if posted is None:
        return
    session.append(
        id=message_id,
        turn=request.turn,
        step=request.step,
        role=Role.USER,
        text=posted.text,
        from_session=posted.sender_id if posted.sender_kind == SenderKind.SESSION else None,
        label=posted.label,
        exchange=posted.exchange,
    )
    session.tell(
        EventKind.MESSAGE_JOINED, turn=request.turn, step=request.step, message_id=message_id
    )


def _said(connection: Connection, request: StepRequest) -> bool:
    """Whether a message stands in the transcript."""
    said = {"key": request.session_key, "of_message": request.message_id}
    return connection.scalar(_SAID, said) is not None


def _turns_about(connection: Connection, request: StepRequest | TurnEnd) -> list[Row[Any]]:
    """The turn of that number and the turn of that message: the same one, or a repeated message."""
    about = {
        "key": request.session_key,
        "of_turn": request.turn,
        "of_message": request.message_id,
    }
    return list(connection.execute(_TURNS_ABOUT, about))


def _place(request: StepRequest) -> dict[str, Any]:
    return {"key": request.session_key, "of_turn": request.turn, "of_step": request.step}
