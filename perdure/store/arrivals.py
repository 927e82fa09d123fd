"""What arrives in a session's mailbox by itself: late answers, and what a person has released.

Invariant: each is laid down once, if at all; what lies there and was not taken is offered again.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, or_, select

from perdure.domain.envelopes import Envelope, Sender, SenderKind
from perdure.domain.exchanges import LATE, RELEASED, late_id, without_skip
from perdure.domain.labels import Label, can_flow
from perdure.domain.states import EventKind
from perdure.store import exchange_rows as rows
from perdure.store import mailbox, releases
from perdure.store.addressing import Terms, takes
from perdure.store.exchange_rows import Answer, Exchange
from perdure.store.exchange_tables import exchanges
from perdure.store.releases import Withholding
from perdure.store.session_writer import SessionWriter
from perdure.store.tables import mailbox as mailbox_table

_OWED = select(exchanges).where(
    exchanges.c.sender_key == bindparam("key"), exchanges.c.owed.is_(True)
)
_ARRIVED = select(mailbox_table).where(
    mailbox_table.c.session_key == bindparam("key"),
    # Ranges of the primary key: of ids that begin so.
    or_(
        *(
            (mailbox_table.c.message_id >= prefix)
            & (mailbox_table.c.message_id < f"{prefix[:-1]}{chr(ord(prefix[-1]) + 1)}")
            for prefix in (LATE, RELEASED)
        )
    ),
)


def arrive(session: SessionWriter, terms: Terms) -> tuple[Envelope, ...]:
    """Lay down what is to arrive in this session; all of it that was not taken yet."""
    connection = session.connection
    releases.release(session)
    for row in connection.execute(_OWED, {"key": session.key}).all():
        pay_late(session, Exchange.model_validate(dict(row._mapping)), terms)
    found = connection.execute(_ARRIVED, {"key": session.key})
    return tuple(mailbox.envelope_of(row) for row in found)


def expects(connection: Connection, session_key: str) -> bool:
    """Whether anything may arrive in a session."""
    owed = connection.execute(_OWED, {"key": session_key}).first()
    return owed is not None or releases.undecided(connection, session_key)


def pay_late(session: SessionWriter, exchange: Exchange, terms: Terms) -> None:
    """Lay the answer that this session is owed into its mailbox, once it is there; or withhold
    it."""
    connection = session.connection
    found = rows.answer(connection, exchange.target_key, exchange.message_id)
    if not exchange.owed or found is None:
        return
    rows.change(connection, exchange, owed=False)
    message_id = late_id(exchange.id)
    if exchange.epoch != session.row.epoch:
        # The session has begun anew and asked nothing of the kind.
        session.tell(EventKind.MESSAGE_DROPPED, message_id=message_id, reason="reset")
    elif takes(Label(session.row.label), terms.ceilings_of(session.row.agent), found.label):
        envelope = Envelope(
            message_id=message_id,
            sender=Sender(kind=SenderKind.SESSION, id=exchange.target_key),
            label=found.label,
        )
        mailbox.post(connection, session.key, envelope, _late_text(exchange, found))
    else:
        withhold_answer(session, exchange, found, terms)


def withhold_answer(
    session: SessionWriter, exchange: Exchange, found: Answer, terms: Terms
) -> None:
    """Keep an answer from this session, and ask a person whether it may be taken in."""
    if not can_flow(found.label, terms.ceilings_of(session.row.agent).clearance):
        return  # nobody can let it in
    withheld = Withholding(
        message_id=late_id(exchange.id),
        from_session=exchange.target_key,
        label=found.label,
        text=_late_text(exchange, found),
        what="answer",
    )
    releases.withhold(session, exchange.call_request, withheld, terms.approval_seconds)


def _late_text(exchange: Exchange, found: Answer) -> str:
    text, _ = without_skip(found.text)
    return f"[Late answer to your message {exchange.message_id}]\n{text}"
