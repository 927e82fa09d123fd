"""Messages from session to session: posted, awaited, answered, each step once.

Invariant: every step is one transaction that does nothing the second time. A message is posted in
the transaction that checks it and opens the wait for it; so what is refused was not delivered, and
what was delivered is answered, withdrawn, or owed to the sender as a late answer.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, select

from perdure.domain.envelopes import Envelope
from perdure.domain.errors import Conflict
from perdure.domain.exchanges import (
    TOLD,
    EndedBy,
    ExchangeResult,
    ExchangeState,
    Mode,
    exchange_id,
    late_id,
    sent_id,
)
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen, Role
from perdure.domain.states import EventKind
from perdure.domain.steps import ExchangeTurn, ToolRequest
from perdure.store import exchange_rows as rows
from perdure.store import mailbox, waits
from perdure.store.addressing import Party, Terms, check_room, find, party
from perdure.store.arrivals import pay_late
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.exchange_rows import Exchange
from perdure.store.exchange_turns import advance, ask, envelope
from perdure.store.session_writer import SessionWriter
from perdure.store.tables import mailbox as mailbox_table
from perdure.store.tables import messages

# Statements are built once: building them anew costs more than running them.
_LIES = select(mailbox_table).where(
    mailbox_table.c.session_key == bindparam("key"),
    mailbox_table.c.message_id == bindparam("message"),
)
_TAKEN = select(messages.c.seq).where(
    messages.c.session_key == bindparam("key"), messages.c.id == bindparam("message")
)
_ASKED_IN_TURN = select(messages.c.exchange, messages.c.id).where(
    messages.c.session_key == bindparam("key"),
    messages.c.turn == bindparam("of_turn"),
    messages.c.step == 0,
    messages.c.role == Role.USER,
)


class Outgoing(Frozen):
    """What a call wants to send, and how long it would wait: `seconds`, and further turns."""

    target: str
    text: str
    mode: Mode = Mode.FIRE_AND_FORGET
    seconds: float = 60.0
    max_turns: int = 3


class Delivery(Frozen):
    """A message that lies in a mailbox since a moment, and is to be announced there."""

    to: Party
    envelope: Envelope
    since: datetime


class Progress(Frozen):
    """How far an exchange is: a message to be announced, one to be answered aside, or its result,
    which is `label`."""

    until: datetime
    deliver: Delivery | None = None
    aside: Envelope | None = None
    result: ExchangeResult | None = None
    label: Label = Label.PUBLIC


class Replied(Frozen):
    """Who is to be told of the end of a turn: the call that waits, or its session by a message."""

    wake: Party | None = None
    deliver: Delivery | None = None


class Exchanges:
    """Sending from session to session."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def send(self, request: ToolRequest, outgoing: Outgoing, terms: Terms) -> Delivery | None:
        """Post a message that nobody waits for, once; None when it has been taken already.

        Raises:
            Unreachable, WriteDown, LimitExceeded: nothing was posted.
        """
        return await self._database.write(_send, request, outgoing, terms)

    async def check(self, sender: str, target: str, label: Label, terms: Terms) -> None:
        """Check that a message of `label` may go from a session to another now.

        Raises:
            Unreachable, WriteDown, LimitExceeded: when it may not.
        """
        await self._database.read(_check, sender, target, label, terms)

    async def take_back(self, session_key: str, message_id: str, reason: str) -> bool:
        """Pick a message up again unread; False when it does not lie there."""
        return await self._database.write(_take_back, session_key, message_id, reason)

    async def open(self, request: ToolRequest, outgoing: Outgoing, terms: Terms) -> Progress:
        """Post a message and open the wait for its answer, once.

        Raises:
            Unreachable, WriteDown, LimitExceeded, Deadlock: nothing was posted.
        """
        return await self._database.write(_open, request, outgoing, terms)

    async def reply(self, turn: ExchangeTurn, terms: Terms) -> Replied:
        """Take notice of the end of a turn that a session waits for."""
        return await self._database.write(_reply, turn, terms)

    async def finish(self, request: ToolRequest) -> None:
        """End the exchange that the turn of this call belongs to, once its answer is read.

        Raises:
            Conflict: when it belongs to none that is under way.
        """
        await self._database.write(_finish, request)


def _send(
    connection: Connection, request: ToolRequest, outgoing: Outgoing, terms: Terms
) -> Delivery | None:
    sent = envelope(sent_id(request), request.session_key, request.label)
    place = {"key": outgoing.target, "message": sent.message_id}
    lies = connection.execute(_LIES, place).first() is not None
    if not lies and connection.execute(_TAKEN, place).first() is not None:
        return None
    if not lies:
        find(connection, request.session_key, outgoing.target, request.label, terms)
        check_room(connection, outgoing.target, sent, terms.limits)
        mailbox.post(connection, outgoing.target, sent, outgoing.text)
    return _delivery(connection, outgoing.target, sent.message_id)


def _check(connection: Connection, sender: str, target: str, label: Label, terms: Terms) -> None:
    find(connection, sender, target, label, terms)
    check_room(connection, target, envelope("next", sender, label), terms.limits)


def _take_back(connection: Connection, session_key: str, message_id: str, reason: str) -> bool:
    lay_there = mailbox.discard(connection, session_key, message_id)
    if lay_there:
        with SessionWriter(connection, session_key) as session:
            session.tell(EventKind.MESSAGE_DROPPED, message_id=message_id, reason=reason)
    return lay_there


def _open(
    connection: Connection, request: ToolRequest, outgoing: Outgoing, terms: Terms
) -> Progress:
    exchange = rows.get(connection, exchange_id(request))
    if exchange is None:
        target = find(connection, request.session_key, outgoing.target, request.label, terms)
    with SessionWriter(connection, request.session_key) as session:
        if exchange is None:
            exchange = _begin(session, request, outgoing, target, terms)
        else:
            exchange = advance(session, exchange, request, terms)
    if exchange.state is ExchangeState.ENDED:
        result, label = rows.result(connection, exchange)
        return Progress(until=exchange.until, result=result, label=label)
    lies = _delivery(connection, exchange.answering, exchange.message_id)
    if exchange.state is ExchangeState.ASIDE:
        return Progress(until=exchange.until, aside=lies and lies.envelope)
    return Progress(until=exchange.until, deliver=lies)


def _begin(
    session: SessionWriter, request: ToolRequest, outgoing: Outgoing, target: Party, terms: Terms
) -> Exchange:
    exchange = Exchange(
        id=exchange_id(request),
        sender_key=session.key,
        **request.model_dump(include={"turn", "step", "call"}),
        epoch=session.row.epoch,
        target_key=target.session_key,
        mode=outgoing.mode,
        max_turns=outgoing.max_turns,
        state=ExchangeState.ASKED,
        message_id=sent_id(request),
        number=0,
        started_at=now(),
        until=now() + timedelta(seconds=outgoing.seconds),
    )
    ask(session, exchange, request, outgoing.text, terms)
    rows.add(session.connection, exchange)
    session.tell(
        EventKind.EXCHANGE_OPENED,
        turn=request.turn,
        step=request.step,
        exchange=exchange.id,
        target=exchange.target_key,
        mode=exchange.mode,
    )
    return exchange


def _reply(connection: Connection, turn: ExchangeTurn, terms: Terms) -> Replied:
    exchange = rows.get(connection, turn.exchange)
    about = (turn.session_key, turn.message_id)
    if exchange is None or (exchange.target_key, exchange.message_id) != about:
        return Replied()
    if exchange.state is ExchangeState.ENDED:
        if exchange.owed:
            with SessionWriter(connection, exchange.sender_key) as session:
                pay_late(session, exchange, terms)
        late = _delivery(connection, exchange.sender_key, late_id(exchange.id))
        return Replied(deliver=late)
    if rows.answer(connection, *about) is not None:
        rows.change(connection, exchange, state=ExchangeState.ANSWERED)
        with SessionWriter(connection, exchange.sender_key) as session:
            # From now on it waits for nobody: who asks it closes no ring.
            waits.close_call(session, exchange.call_request)
    return Replied(wake=party(connection, exchange.sender_key))


def _finish(connection: Connection, request: ToolRequest) -> None:
    turn = {"key": request.session_key, "of_turn": request.turn}
    asked = connection.execute(_ASKED_IN_TURN, turn).first()
    if asked and asked.exchange and asked.exchange.startswith(TOLD):
        return  # whoever leads it sees the call
    exchange = rows.get(connection, asked.exchange) if asked and asked.exchange else None
    if asked is None or exchange is None or exchange.message_id != asked.id:
        raise Conflict(
            "This turn belongs to no exchange that is under way.",
            "Only a session that another one is talking with can end that.",
        )
    mine = exchange.answering == exchange.sender_key
    rows.change(connection, exchange, closing=EndedBy.SENDER if mine else EndedBy.TARGET)


def _delivery(connection: Connection, session_key: str, message_id: str) -> Delivery | None:
    row = connection.execute(_LIES, {"key": session_key, "message": message_id}).one_or_none()
    to = party(connection, session_key)
    if row is None or to is None:
        return None
    return Delivery(to=to, envelope=mailbox.envelope_of(row), since=row.at)
