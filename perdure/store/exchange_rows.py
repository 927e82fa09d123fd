"""The row of an exchange, and the answers that it refers to.

Invariant: an exchange holds no words. What was said is read from the transcripts, where it stands
once and for ever.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, func, insert, select, update

from perdure.domain.exchanges import (
    Answered,
    EndedBy,
    ExchangeResult,
    ExchangeState,
    ExchangeStats,
    ExchangeStatus,
    Line,
    Mode,
    Settled,
    Unanswered,
    Withheld,
    without_skip,
)
from perdure.domain.labels import Label, join
from perdure.domain.messages import Frozen, Usage
from perdure.domain.states import TurnState
from perdure.domain.steps import ToolRequest
from perdure.store.exchange_tables import exchanges
from perdure.store.tables import messages, steps, turns

# Statements are built once: building them anew costs more than running them.
_GET = select(exchanges).where(exchanges.c.id == bindparam("exchange"))
_OF_TURN = select(exchanges).where(
    exchanges.c.sender_key == bindparam("key"),
    exchanges.c.turn == bindparam("of_turn"),
    exchanges.c.state != ExchangeState.ENDED,
)
_TURN = (
    select(turns.c.turn, turns.c.state, turns.c.answer_id, messages.c.text, messages.c.label)
    .outerjoin(
        messages,
        (messages.c.session_key == turns.c.session_key) & (messages.c.id == turns.c.answer_id),
    )
    .where(turns.c.session_key == bindparam("key"), turns.c.message_id == bindparam("message"))
)
_USED = select(
    func.coalesce(func.sum(steps.c.input_tokens), 0),
    func.coalesce(func.sum(steps.c.output_tokens), 0),
    func.sum(steps.c.cost),
).where(steps.c.session_key == bindparam("key"), steps.c.turn == bindparam("of_turn"))
_TEXT = select(messages.c.text, messages.c.label).where(
    messages.c.session_key == bindparam("key"), messages.c.id == bindparam("message")
)


class Said(Frozen):
    """An answer, by where it stands."""

    session_key: str
    answer_id: str


class Exchange(Frozen):
    """An exchange as the store knows it."""

    id: str
    sender_key: str
    turn: int
    step: int
    call: int
    epoch: int
    target_key: str
    mode: Mode
    max_turns: int
    state: ExchangeState
    message_id: str
    number: int
    said: tuple[Said, ...] = ()
    turns: int = 0
    closing: EndedBy | None = None
    owed: bool = False
    status: ExchangeStatus | None = None
    ended_by: EndedBy | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    started_at: datetime
    until: datetime
    ended_at: datetime | None = None

    @property
    def call_request(self) -> ToolRequest:
        """The place of the sender's call."""
        place = self.model_dump(include={"turn", "step", "call"})
        return ToolRequest(session_key=self.sender_key, agent="", **place)

    @property
    def answering(self) -> str:
        """The session whose answer is awaited, or came last."""
        return self.sender_key if self.number % 2 else self.target_key

    @property
    def first_message(self) -> str:
        """The id of the message that opened it."""
        return self.id.replace("exc_", "snd_", 1)


class Answer(Frozen):
    """The end of the turn that a message was answered in."""

    state: TurnState
    answer_id: str
    text: str
    label: Label
    usage: Usage


def get(connection: Connection, exchange: str) -> Exchange | None:
    """One exchange, or None."""
    row = connection.execute(_GET, {"exchange": exchange}).one_or_none()
    return None if row is None else Exchange.model_validate(dict(row._mapping))


def open_of_turn(connection: Connection, session_key: str, turn: int) -> list[Exchange]:
    """The exchanges that calls of a turn have opened and that have not ended."""
    rows = connection.execute(_OF_TURN, {"key": session_key, "of_turn": turn})
    return [Exchange.model_validate(dict(row._mapping)) for row in rows]


def add(connection: Connection, exchange: Exchange) -> None:
    """Record a new exchange."""
    connection.execute(insert(exchanges).values(_columns(exchange)))


def change(connection: Connection, exchange: Exchange, **changes: Any) -> Exchange:
    """The exchange with `changes`, recorded."""
    changed = exchange.model_copy(update=changes)
    values = {name: value for name, value in _columns(changed).items() if name in changes}
    connection.execute(update(exchanges).where(exchanges.c.id == exchange.id).values(values))
    return changed


def answer(connection: Connection, session_key: str, message_id: str) -> Answer | None:
    """How the turn of a message has ended; None while it has not, or when there is none."""
    turn = connection.execute(_TURN, {"key": session_key, "message": message_id}).one_or_none()
    if turn is None or turn.state == TurnState.RUNNING:
        return None
    used = {"key": session_key, "of_turn": turn.turn}
    input_tokens, output_tokens, cost = connection.execute(_USED, used).one()
    return Answer(
        state=turn.state,
        answer_id=turn.answer_id,
        text=turn.text or "",
        label=turn.label or Label.PUBLIC,
        usage=Usage(input_tokens=input_tokens, output_tokens=output_tokens, cost=cost),
    )


def has_turn(connection: Connection, session_key: str, message_id: str) -> bool:
    """Whether a turn has taken a message."""
    turn = connection.execute(_TURN, {"key": session_key, "message": message_id}).one_or_none()
    return turn is not None


def result(connection: Connection, exchange: Exchange) -> tuple[ExchangeResult, Label]:
    """What the sender's call reports of an exchange that has ended, and the level of that."""
    assert exchange.status is not None, "it has ended"
    if not exchange.said:
        if exchange.status is ExchangeStatus.WITHHELD:
            return Withheld(), Label.PUBLIC
        return Unanswered(status=exchange.status, message_id=exchange.first_message), Label.PUBLIC
    lines, label = _lines(connection, exchange)
    ended_at = exchange.ended_at or exchange.until
    theirs = [line.text for line in lines[1:] if line.from_session == exchange.target_key]
    reply = {
        "status": exchange.status,
        "response": theirs[-1],
        "stats": ExchangeStats(
            runtime_ms=int((ended_at - exchange.started_at).total_seconds() * 1000),
            tokens=exchange.input_tokens + exchange.output_tokens,
            cost=exchange.cost,
        ),
    }
    if exchange.mode is Mode.WAIT:
        return Answered.model_validate(reply), label
    told = {
        "turns_completed": exchange.turns,
        "ended_by": exchange.ended_by,
        "transcript": tuple(lines),
    }
    return Settled.model_validate({**reply, **told}), label


def count(connection: Connection, exchange: Exchange, found: Answer) -> Exchange:
    """The exchange with one more answer, and what it took."""
    costs = [cost for cost in (exchange.cost, found.usage.cost) if cost is not None]
    said = Said(session_key=exchange.answering, answer_id=found.answer_id)
    return change(
        connection,
        exchange,
        said=(*exchange.said, said),
        # The first answer is not counted as a turn.
        turns=exchange.turns + (exchange.number > 0),
        input_tokens=exchange.input_tokens + found.usage.input_tokens,
        output_tokens=exchange.output_tokens + found.usage.output_tokens,
        cost=sum(costs) if costs else None,
    )


def _lines(connection: Connection, exchange: Exchange) -> tuple[list[Line], Label]:
    """What was said so far, the sender's first message included, and the level of the answers."""
    asked = connection.execute(
        _TEXT, {"key": exchange.target_key, "message": exchange.first_message}
    ).one_or_none()
    first = asked.text if asked is not None else ""
    lines = [Line(from_session=exchange.sender_key, message_id=exchange.first_message, text=first)]
    labels = []
    for said in exchange.said:
        place = {"key": said.session_key, "message": said.answer_id}
        found = connection.execute(_TEXT, place).one()
        text, _ = without_skip(found.text)
        lines.append(Line(from_session=said.session_key, message_id=said.answer_id, text=text))
        labels.append(Label(found.label))
    return lines, join(*labels)


def _columns(exchange: Exchange) -> dict[str, Any]:
    said = [one.model_dump() for one in exchange.said]
    return {**dict(exchange), "said": said}
