"""What a session may not take in until a person has approved it.

Invariant: the session reads nothing of it before, and it goes into the mailbox once. The decision
is final: nothing is asked again for the same place.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from perdure.domain.approvals import ApprovalPurpose, ApprovalState
from perdure.domain.envelopes import Envelope, Sender, SenderKind
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen, ToolCall
from perdure.domain.states import EventKind
from perdure.domain.steps import ToolRequest
from perdure.store import approvals, mailbox
from perdure.store.clock import now
from perdure.store.exchange_tables import releases
from perdure.store.session_writer import SessionWriter

#: What stands in an approval in the place of a tool.
TAKE_IN = "take_in"

_UNSETTLED = select(releases).where(
    releases.c.session_key == bindparam("key"), releases.c.settled_at.is_(None)
)


class Withholding(Frozen):
    """A message that may not be taken in: `message_id` is what it will have as such."""

    message_id: str
    from_session: str
    label: Label
    text: str
    #: What kind of message it is, in a person's words: "answer", "result".
    what: str


def withhold(
    session: SessionWriter, place: ToolRequest, withheld: Withholding, seconds: float
) -> None:
    """Keep a message from this session, and ask whether it may take it in, once for each place;
    a person may say so for `seconds`."""
    if approvals.of_call(session.connection, place, ApprovalPurpose.RELEASE) is not None:
        return
    told = withheld.model_dump(mode="json", include={"message_id", "from_session", "label"})
    approval = approvals.ask(
        session,
        place,
        ToolCall(id="", name=TAKE_IN, arguments=json.dumps(told)),
        asked_by="invariant:label-flow",
        reason=(
            f"The {withheld.what} of {withheld.from_session} is {withheld.label}, which is above "
            "what this session takes in. Taking it in raises the session."
        ),
        timeout=seconds,
        purpose=ApprovalPurpose.RELEASE,
    )
    session.connection.execute(
        insert(releases).values(
            approval_id=approval.id,
            session_key=session.key,
            epoch=session.row.epoch,
            **withheld.model_dump(exclude={"what"}),
        )
    )


def release(session: SessionWriter) -> None:
    """Lay into the mailbox of this session what a person has approved."""
    for row in session.connection.execute(_UNSETTLED, {"key": session.key}).all():
        state = approvals.get(session.connection, row.approval_id).state
        if state is ApprovalState.PENDING:
            continue
        if state is ApprovalState.APPROVED:
            _post(session, row)
        session.connection.execute(
            update(releases)
            .where(releases.c.approval_id == row.approval_id)
            .values(settled_at=now())
        )


def undecided(connection: Connection, session_key: str) -> bool:
    """Whether something is withheld from a session, or was released and is not laid down yet."""
    return connection.execute(_UNSETTLED, {"key": session_key}).first() is not None


def _post(session: SessionWriter, row: Row[Any]) -> None:
    if row.epoch != session.row.epoch:
        # The session has begun anew and asked nothing of the kind.
        session.tell(EventKind.MESSAGE_DROPPED, message_id=row.message_id, reason="reset")
        return
    envelope = Envelope(
        message_id=row.message_id,
        sender=Sender(kind=SenderKind.SESSION, id=row.from_session),
        label=row.label,
        cleared=True,
    )
    mailbox.post(session.connection, session.key, envelope, row.text)
