"""What travels to a session: an envelope by reference, and the ticket that answers it.

Invariant: an envelope carries no conversation text. The sender puts the text into the store's
mailbox first, under the message id; workflow history and workflow state hold only ids, so
neither the number nor the size of waiting messages can grow past Temporal's limits.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import ConfigDict, Field

from perdure.domain.labels import Label
from perdure.domain.messages import Frozen

#: What the envelopes that wait for a session may take of its workflow's state: with the ids it
#: remembers, well under Temporal's 2 MB for a payload.
WAITING_BYTES = 1_200_000


class SenderKind(StrEnum):
    """Where a message comes from."""

    USER = "user"
    SESSION = "session"
    #: The session that spawned this one, with its task.
    PARENT = "parent"
    SYSTEM = "system"


class Sender(Frozen):
    """Who sent a message: a person's or program's name, or the key of a session."""

    kind: SenderKind = SenderKind.USER
    id: str = Field("user", min_length=1, max_length=512)


class Envelope(Frozen):
    """The announcement of one message that lies in the mailbox under `message_id`.

    Deliberately open (`extra="ignore"`): a signal that cannot be parsed would be dropped.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    message_id: str = Field(pattern=r"^[\x21-\x7e]{1,128}$")
    sender: Sender = Sender()
    label: Label = Label.PUBLIC
    #: Whether it may join the turn under way at its next step, instead of waiting for one of
    #: its own.
    joins: bool = False
    #: Whether it may come in up to the agent's clearance, whatever session it is from: a person
    #: has approved it.
    cleared: bool = False
    #: The exchange it belongs to, whose other side waits for the end of its turn.
    exchange: str | None = None
    #: Whether its answer leaves by a channel, which the store knows.
    replies: bool = Field(False, exclude_if=lambda replies: not replies)
    #: What sent it, as the `traceparent` of a trace; where there is none it takes no room.
    trace: str | None = Field(None, exclude_if=lambda trace: trace is None)

    @property
    def size(self) -> int:
        """What it takes of a workflow's state, in bytes."""
        return len(self.model_dump_json().encode())


class Ticket(Frozen):
    """The durable admission of a message.

    `position` counts the messages that will be answered before this one, the running turn
    included. `duplicate` says that this id had been admitted before and nothing was added.
    """

    message_id: str
    session_key: str
    position: int = 0
    duplicate: bool = False
