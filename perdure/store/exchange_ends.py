"""How exchanges end, whoever ends them.

Invariant: an exchange ends once. A message is withdrawn only while it lies unread, in the
transaction that ends its exchange.
"""

from __future__ import annotations

from sqlalchemy import Connection

from perdure.domain.exchanges import EndedBy, ExchangeState, ExchangeStatus
from perdure.domain.states import EventKind
from perdure.store import exchange_rows as rows
from perdure.store import mailbox
from perdure.store.clock import now
from perdure.store.exchange_rows import Exchange
from perdure.store.session_writer import SessionWriter

_WITHOUT_ANSWER = (
    ExchangeStatus.WITHDRAWN,
    ExchangeStatus.DELIVERED_NO_REPLY,
    ExchangeStatus.REFUSED,
)


def end(
    session: SessionWriter,
    exchange: Exchange,
    status: ExchangeStatus,
    ended_by: EndedBy,
    *,
    owed: bool = False,
) -> Exchange:
    """End an exchange of this session. `owed`: an answer that comes is to arrive late."""
    if exchange.said and status in _WITHOUT_ANSWER:
        # There are answers, whatever became of the last message.
        status = ExchangeStatus.REPLIED
    session.tell(
        EventKind.EXCHANGE_ENDED,
        turn=exchange.turn,
        step=exchange.step,
        exchange=exchange.id,
        status=status,
        ended_by=ended_by,
        turns=exchange.turns,
    )
    return rows.change(
        session.connection,
        exchange,
        state=ExchangeState.ENDED,
        status=status,
        ended_by=ended_by,
        owed=owed,
        ended_at=now(),
    )


def end_unanswered(session: SessionWriter, exchange: Exchange, ended_by: EndedBy) -> Exchange:
    """End an exchange whose target has not answered: take the message back if it lies unread."""
    if _withdraw(session.connection, exchange):
        return end(session, exchange, ExchangeStatus.WITHDRAWN, ended_by)
    return end(session, exchange, ExchangeStatus.DELIVERED_NO_REPLY, ended_by, owed=True)


def abandon(session: SessionWriter, turn: int) -> None:
    """End what calls of a turn of this session still wait for: the turn ends.

    What the other side has begun to answer is owed to the session as a late answer.
    """
    for exchange in rows.open_of_turn(session.connection, session.key, turn):
        if exchange.state is ExchangeState.ASIDE:
            mailbox.discard(session.connection, session.key, exchange.message_id)
            end(session, exchange, ExchangeStatus.REPLIED, EndedBy.SENDER)
        else:
            end_unanswered(session, exchange, EndedBy.SENDER)


def _withdraw(connection: Connection, exchange: Exchange) -> bool:
    if not mailbox.discard(connection, exchange.target_key, exchange.message_id):
        return False
    with SessionWriter(connection, exchange.target_key) as target:
        target.tell(EventKind.MESSAGE_DROPPED, message_id=exchange.message_id, reason="withdrawn")
    return True
