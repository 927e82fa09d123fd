"""Whose turn it is in an exchange, and what the sender's call does about it.

Invariant: pure bookkeeping in the caller's transaction. Where nothing has happened nothing changes,
so a call may look as often as it likes.
"""

from __future__ import annotations

from perdure.domain.envelopes import Envelope, Sender, SenderKind
from perdure.domain.errors import Deadlock, PerdureError
from perdure.domain.exchanges import (
    EndedBy,
    ExchangeState,
    ExchangeStatus,
    Mode,
    next_id,
    without_skip,
)
from perdure.domain.labels import Label
from perdure.domain.states import TurnState
from perdure.domain.steps import ToolRequest
from perdure.store import exchange_rows as rows
from perdure.store import mailbox, waits
from perdure.store.addressing import Terms, check_room, find, takes
from perdure.store.arrivals import withhold_answer
from perdure.store.clock import now
from perdure.store.exchange_ends import end, end_unanswered
from perdure.store.exchange_rows import Exchange
from perdure.store.session_writer import SessionWriter


def advance(
    session: SessionWriter, exchange: Exchange, request: ToolRequest, terms: Terms
) -> Exchange:
    """Take the exchange as far as it goes now; `request` is the sender's call, at its label."""
    while True:
        match exchange.state:
            case ExchangeState.ASKED:
                moved = _asked(session, exchange)
            case ExchangeState.ANSWERED:
                moved = _answered(session, exchange, request, terms)
            case ExchangeState.ASIDE:
                moved = _aside(session, exchange, request, terms)
            case ExchangeState.ENDED:
                return exchange
        if moved == exchange:
            return exchange
        exchange = moved


def ask(
    session: SessionWriter, exchange: Exchange, request: ToolRequest, text: str, terms: Terms
) -> None:
    """Lay the message of an exchange down at its target, and wait for it from now on.

    Raises:
        LimitExceeded, Deadlock: nothing was changed.
    """
    sent = envelope(exchange.message_id, session.key, request.label, exchange.id)
    check_room(session.connection, exchange.target_key, sent, terms.limits)
    waits.open_wait(session, request, [exchange.target_key], exchange.until, level=request.label)
    mailbox.post(session.connection, exchange.target_key, sent, text)


def envelope(message_id: str, sender: str, label: Label, exchange: str | None = None) -> Envelope:
    """The envelope of a message from a session."""
    return Envelope(
        message_id=message_id,
        sender=Sender(kind=SenderKind.SESSION, id=sender),
        label=label,
        exchange=exchange,
    )


def _asked(session: SessionWriter, exchange: Exchange) -> Exchange:
    """The target's turn: look whether it has answered, or can do so no more."""
    connection = session.connection
    place = (connection, exchange.target_key, exchange.message_id)
    if rows.answer(*place) is not None:
        return rows.change(connection, exchange, state=ExchangeState.ANSWERED)
    if not mailbox.holds(*place) and not rows.has_turn(*place):
        return end(session, exchange, ExchangeStatus.REFUSED, EndedBy.FAILURE)
    if now() < exchange.until:
        return exchange
    return end_unanswered(session, exchange, EndedBy.TIMEOUT)


def _answered(
    session: SessionWriter, exchange: Exchange, request: ToolRequest, terms: Terms
) -> Exchange:
    """The call's turn: take the answer in, and go on or end."""
    connection = session.connection
    found = rows.answer(connection, exchange.target_key, exchange.message_id)
    assert found is not None, "it was there"
    if not takes(request.label, terms.ceilings_of(request.agent), found.label):
        withhold_answer(session, exchange, found, terms)
        return end(session, exchange, ExchangeStatus.WITHHELD, EndedBy.POLICY)
    exchange = rows.count(connection, exchange, found)
    if found.state is not TurnState.COMPLETED:
        return end(session, exchange, ExchangeStatus.FAILED, EndedBy.FAILURE)
    text, skip = without_skip(found.text)
    over = _over(exchange, skip, EndedBy.TARGET)
    if over is not None:
        return end(session, exchange, ExchangeStatus.REPLIED, over)
    number = exchange.number + 1
    message_id = next_id(exchange.id, number)
    aside = envelope(message_id, exchange.target_key, found.label, exchange.id)
    mailbox.post(connection, session.key, aside, text)
    return rows.change(
        connection, exchange, state=ExchangeState.ASIDE, number=number, message_id=message_id
    )


def _aside(
    session: SessionWriter, exchange: Exchange, request: ToolRequest, terms: Terms
) -> Exchange:
    """The sender's turn: look whether it has answered on its side thread, and send that on."""
    connection = session.connection
    place = (connection, session.key, exchange.message_id)
    found = rows.answer(*place)
    if found is None:
        if mailbox.holds(*place) or (rows.has_turn(*place) and now() < exchange.until):
            return exchange
        return end(session, exchange, ExchangeStatus.REPLIED, EndedBy.TIMEOUT)
    exchange = rows.count(connection, exchange, found)
    if found.state is not TurnState.COMPLETED:
        return end(session, exchange, ExchangeStatus.REPLIED, EndedBy.FAILURE)
    text, skip = without_skip(found.text)
    over = _over(exchange, skip, EndedBy.SENDER)
    if over is not None:
        return end(session, exchange, ExchangeStatus.REPLIED, over)
    number = exchange.number + 1
    asking = exchange.model_copy(
        update={"number": number, "message_id": next_id(exchange.id, number)}
    )
    try:
        find(connection, session.key, exchange.target_key, request.label, terms)
        ask(session, asking, request, text, terms)
    except Deadlock:
        return end(session, exchange, ExchangeStatus.REPLIED, EndedBy.DEADLOCK)
    except PerdureError:
        return end(session, exchange, ExchangeStatus.REPLIED, EndedBy.POLICY)
    return rows.change(
        connection,
        exchange,
        state=ExchangeState.ASKED,
        number=number,
        message_id=asking.message_id,
    )


def _over(exchange: Exchange, skip: bool, speaker: EndedBy) -> EndedBy | None:
    """Why an answer was the last one, if it was."""
    if exchange.mode is Mode.WAIT or skip or exchange.closing is speaker:
        return speaker
    if exchange.turns >= exchange.max_turns:
        return EndedBy.MAX_TURNS
    return EndedBy.TIMEOUT if now() >= exchange.until else None
