"""The life of one turn: begun with its message, joined by others, ended once.

Invariant: a turn's first message leaves the mailbox in the transaction that begins it; whatever
waited for the turn is let go of in the transaction that ends it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, insert, or_, select, update

from perdure.domain.envelopes import SenderKind
from perdure.domain.errors import Code, NotFound, Refusal
from perdure.domain.labels import Label
from perdure.domain.messages import Role
from perdure.domain.states import EventKind, SessionState, TurnState
from perdure.domain.steps import StepRequest, TurnEnd
from perdure.store import approvals, exchange_ends, mailbox, waits
from perdure.store.clock import now
from perdure.store.session_writer import SessionWriter
from perdure.store.tables import deltas, turns

_ENDED_BY = {
    TurnState.COMPLETED: EventKind.TURN_COMPLETED,
    TurnState.FAILED: EventKind.TURN_FAILED,
    TurnState.INTERRUPTED: EventKind.TURN_INTERRUPTED,
}


# Statements are built once: building them anew costs more than running them.
_TURN_IS = (turns.c.session_key == bindparam("key"), turns.c.turn == bindparam("of_turn"))
_TURNS_ABOUT = select(turns).where(
    turns.c.session_key == bindparam("key"),
    or_(turns.c.turn == bindparam("of_turn"), turns.c.message_id == bindparam("of_message")),
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
_DROP_DELTAS = delete(deltas).where(
    deltas.c.session_key == bindparam("key"), deltas.c.turn <= bindparam("of_turn")
)


def turns_about(connection: Connection, request: StepRequest | TurnEnd) -> list[Row[Any]]:
    """The turn of that number and the turn of that message: the same one, or a repeated message."""
    about = {
        "key": request.session_key,
        "of_turn": request.turn,
        "of_message": request.message_id,
    }
    return list(connection.execute(_TURNS_ABOUT, about))


def start_turn(
    session: SessionWriter, request: StepRequest | TurnEnd, posted: Row[Any] | None
) -> None:
    """Begin a turn with the message that was taken from the mailbox.

    Raises:
        NotFound: when there was none.
    """
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


def join_turn(session: SessionWriter, request: StepRequest, message_id: str) -> None:
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


def settle(
    session: SessionWriter,
    turn: Row[Any],
    state: TurnState,
    answer_id: str,
    error: Refusal | None,
    *,
    aside: bool,
) -> None:
    """End a turn whose last message stands in the transcript, and let go of what waited for it."""
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


def end_with_reason(
    session: SessionWriter,
    turn: Row[Any],
    state: TurnState,
    reason: Refusal,
    label: Label,
    *,
    exchange: str | None = None,
    aside: bool = False,
) -> None:
    """End a turn that has no answer of its own: the reason becomes its last message."""
    answer_id = f"end_{turn.turn}"
    drop_streamed(session, turn)
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
    settle(session, turn, state, answer_id, reason, aside=aside)


def drop_streamed(session: SessionWriter, turn: Row[Any]) -> None:
    """What was streamed up to now stands in the transcript, or is void."""
    session.connection.execute(_DROP_DELTAS, {"key": session.key, "of_turn": turn.turn})


def close_orphans(session: SessionWriter) -> None:
    """End every running turn of a session whose workflow is gone."""
    running = session.connection.execute(
        select(turns).where(turns.c.session_key == session.key, turns.c.state == TurnState.RUNNING)
    ).all()
    for turn in running:
        end_with_reason(
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
