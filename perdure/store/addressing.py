"""Whom a session may send to: seen, not below it, and with room for one more message.

Invariant: a session that is not there, that belongs to another tenant and that may not be seen is
one answer to whoever asks. Why it is that answer, only the audit trail is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, func, select

from perdure.domain.envelopes import WAITING_BYTES, Envelope, SenderKind
from perdure.domain.errors import Denied, LimitExceeded, NotFound
from perdure.domain.keys import SessionKey
from perdure.domain.labels import Label, can_flow, join
from perdure.domain.limits import Limits
from perdure.domain.messages import Frozen
from perdure.policy.invariants import may_receive, may_see, may_send
from perdure.store.tables import mailbox, sessions

#: What an envelope takes of a workflow's state beside its id, its sender and its exchange.
_ENVELOPE_BYTES = 160

_SESSION = select(sessions.c.agent, sessions.c.label, sessions.c.epoch).where(
    sessions.c.session_key == bindparam("key")
)
_ROOM = select(
    func.count(),
    func.coalesce(
        func.sum(
            func.length(mailbox.c.message_id)
            + func.length(mailbox.c.sender_id)
            + func.length(func.coalesce(mailbox.c.exchange, ""))
            + _ENVELOPE_BYTES
        ),
        0,
    ),
).where(mailbox.c.session_key == bindparam("key"))
_OF_SENDER = select(func.count()).where(
    mailbox.c.session_key == bindparam("key"),
    mailbox.c.sender_kind == SenderKind.SESSION,
    mailbox.c.sender_id == bindparam("sender"),
)


class Ceilings(NamedTuple):
    """What an agent's settings say of its sessions: what others may send to them without their
    being there (None: nothing), and the highest label they may reach."""

    intake: Label | None
    clearance: Label


class Terms(NamedTuple):
    """What the settings say of messages between sessions: limits, the ceilings of an agent by its
    name, and the seconds for which a person may approve what was withheld."""

    limits: Limits
    ceilings_of: Callable[[str], Ceilings]
    approval_seconds: float


class Party(Frozen):
    """A session as one that sends to it finds it."""

    session_key: str
    agent: str
    label: Label
    epoch: int


class Unreachable(NotFound):
    """There is no such session, for whoever asks; `why` is for the audit trail."""

    def __init__(self, why: str) -> None:
        super().__init__(
            "There is no such session.", "sessions_list names those that you may send to."
        )
        self.why = why


class WriteDown(Denied):
    """The message would tell a session what is above it."""

    @property
    def why(self) -> str:
        """What the audit trail is told."""
        return self.message


def party(connection: Connection, session_key: str) -> Party | None:
    """A session, whoever asks; None when there is none."""
    row = connection.execute(_SESSION, {"key": session_key}).one_or_none()
    if row is None:
        return None
    return Party(session_key=session_key, agent=row.agent, label=row.label, epoch=row.epoch)


def find(connection: Connection, sender: str, target: str, label: Label, terms: Terms) -> Party:
    """The session that a message of `label` from `sender` may go to.

    Raises:
        Unreachable: when there is none that the sender may see.
        WriteDown: when the message is above what it takes in.
    """
    found = party(connection, target)
    if found is None:
        raise Unreachable("It does not exist.")
    if SessionKey.parse(target).tenant != SessionKey.parse(sender).tenant:
        raise Unreachable("It belongs to another tenant.")
    if not may_see(label, found.label):
        raise Unreachable(f"It is {found.label}; the one that asks is {label}.")
    ceilings = terms.ceilings_of(found.agent)
    if not may_send(label, found.label, ceilings.intake):
        takes = join(found.label, ceilings.intake or found.label)
        raise WriteDown(
            f"write-down: this session is {label}; {target} takes what is {takes} or lower.",
            "Send to a session that is as high, or have the intake of its agent raised.",
        )
    if not may_receive(found.label, label, ceilings.clearance):
        raise WriteDown(
            f"write-down: this session is {label}; the clearance of {target} is "
            f"{ceilings.clearance}.",
            "Send to a session whose agent has a higher clearance.",
        )
    return found


def takes(label: Label, ceilings: Ceilings, message: Label) -> bool:
    """Whether a session at `label` takes in what is `message` without a person's word."""
    return can_flow(message, join(label, ceilings.intake or label)) and may_receive(
        label, message, ceilings.clearance
    )


def check_room(connection: Connection, target: str, envelope: Envelope, limits: Limits) -> None:
    """Refuse a message for which there is no room: on arrival nobody could be told.

    Raises:
        LimitExceeded: when too many messages wait, of this sender or of all.
    """
    sender = {"key": target, "sender": envelope.sender.id}
    mine = connection.scalar(_OF_SENDER, sender) or 0
    if mine >= limits.inbox_per_sender:
        raise LimitExceeded(
            f"{mine} of your messages wait for {target}; limits.inbox_per_sender is "
            f"{limits.inbox_per_sender}.",
            "Nothing was sent. Send again when some have been answered.",
        )
    count, size = connection.execute(_ROOM, {"key": target}).one()
    if count >= limits.inbox or size + envelope.size > WAITING_BYTES:
        raise LimitExceeded(
            f"{count} messages wait for {target}; limits.inbox is {limits.inbox}.",
            "Nothing was sent. Send again when some have been answered.",
        )
