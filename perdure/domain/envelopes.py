"""What travels to a session: an envelope by reference, and the ticket that answers it.

Invariant: an envelope carries no conversation text. The sender puts the text into the store's
mailbox first, under the message id; workflow history and workflow state hold only ids, so
neither the number nor the size of waiting messages can grow past Temporal's limits.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import ConfigDict

from perdure.domain.labels import Label
from perdure.domain.messages import Frozen


class SenderKind(StrEnum):
    """Where a message comes from."""

    USER = "user"
    SESSION = "session"
    SYSTEM = "system"


class Sender(Frozen):
    """Who sent a message: a person's or program's name, or the key of a session."""

    kind: SenderKind = SenderKind.USER
    id: str = "user"


class Envelope(Frozen):
    """The announcement of one message that lies in the mailbox under `message_id`.

    Deliberately open (`extra="ignore"`): a signal that cannot be parsed would be dropped.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    message_id: str
    sender: Sender = Sender()
    label: Label = Label.PUBLIC


class Ticket(Frozen):
    """The durable admission of a message.

    `position` counts the messages that will be answered before this one, the running turn
    included. `duplicate` says that this id had been admitted before and nothing was added.
    """

    message_id: str
    session_key: str
    position: int = 0
    duplicate: bool = False
