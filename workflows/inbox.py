"""The inbox: admitted envelopes in order, each id once.

Invariant: an id is admitted at most once while it waits and for the `WINDOW` messages taken after
it; the store answers for all before that. Senders are served in turn, and each in its own order: of
`n` senders that wait, none waits longer than for one message of each of the others. What cannot be
admitted is refused before it is recorded, so a full inbox still fits into one payload.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence

from perdure.domain.envelopes import WAITING_BYTES, Envelope, SenderKind
from perdure.domain.errors import Denied, LimitExceeded
from perdure.domain.labels import Label, can_flow, join
from workflows.state import SessionState

#: Ids remembered after their turn. An id older than this was taken into the store's transcript
#: long ago, where a repeated message is recognised before it reaches the workflow.
WINDOW = 1_000


class Inbox:
    """The queue of a session, over its carried state."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._count()

    def __len__(self) -> int:
        return len(self._state.inbox)

    def knows(self, envelope: Envelope) -> bool:
        """Whether an envelope of this id waits, or was taken not long ago."""
        return envelope.message_id in self._known

    def check(self, envelope: Envelope) -> None:
        """Refuse what may not come in.

        Raises:
            LimitExceeded: when the inbox is full.
            Denied: when the message's label is above the agent's clearance; or above both the
                session's label and the agent's intake, when another session sent it.
        """
        if self.knows(envelope):
            return
        limit = self._state.inbox_limit
        if len(self) >= limit:
            raise LimitExceeded(
                f"{len(self)} messages wait for this session; limits.inbox is {limit}.",
                "Send again when some have been answered, or raise limits.inbox.",
            )
        if self._bytes + envelope.size > WAITING_BYTES:
            raise LimitExceeded(
                f"The {len(self)} messages that wait for this session have {self._bytes} bytes of "
                f"ids and senders; the limit is {WAITING_BYTES}.",
                "Send again when some have been answered, or use shorter message ids.",
            )
        if not can_flow(envelope.label, self._state.clearance):
            raise Denied(
                f"A {envelope.label} message is above the agent's clearance, "
                f"{self._state.clearance}.",
                "Use an agent with a higher clearance.",
            )
        if not self._takes(envelope):
            raise Denied(
                f"A {envelope.label} message of another session is above what this one takes in.",
                "Raise the intake of its agent, or send what it may know.",
            )

    def admit(self, envelope: Envelope) -> bool:
        """Queue an envelope; False when its id was admitted before."""
        if self.knows(envelope):
            return False
        self._state.inbox.append(envelope)
        self._known.add(envelope.message_id)
        self._bytes += envelope.size
        sender = _sender(envelope)
        if not self._of[sender]:
            self._state.ring.append(sender)
        self._of[sender] += 1
        return True

    def take(self) -> Envelope:
        """The oldest envelope of the sender whose turn it is, removed."""
        inbox, ring = self._state.inbox, self._state.ring
        sender = ring.pop(0)
        place = next(place for place, each in enumerate(inbox) if _sender(each) == sender)
        envelope = inbox.pop(place)
        self._of[sender] -= 1
        if self._of[sender]:
            ring.append(sender)
        self._bytes -= envelope.size
        self._remember(envelope.message_id)
        return envelope

    def _remember(self, message_id: str) -> None:
        self._state.seen.append(message_id)
        excess = len(self._state.seen) - WINDOW
        if excess > 0:
            self._known.difference_update(self._state.seen[:excess])
            del self._state.seen[:excess]

    def joining(self) -> tuple[Envelope, ...]:
        """The envelopes that may join the turn under way, oldest first."""
        return tuple(envelope for envelope in self._state.inbox if envelope.joins)

    def remove(self, envelopes: Sequence[Envelope]) -> None:
        """Take `envelopes` out: they have joined a turn."""
        for envelope in envelopes:
            if envelope in self._state.inbox:
                self._state.inbox.remove(envelope)
                self._remember(envelope.message_id)
        if envelopes:
            self._count()

    def put_first(self, envelope: Envelope) -> None:
        """Queue an envelope before all others, once."""
        if not self.knows(envelope):
            self._state.inbox.insert(0, envelope)
            self._state.ring.insert(0, _sender(envelope))
            self._count()

    def take_over(self, pending: Sequence[Envelope]) -> list[Envelope]:
        """Queue `pending`, in its order, before what has come since the run began.

        Returns what may not come in. What has come since was checked without knowing the
        session; and the agent may have lost the clearance for what was sent to it before.
        """
        # The mailbox knows an envelope but for its trace.
        traces = {envelope.message_id: envelope.trace for envelope in self._state.inbox}
        pending = [
            each.model_copy(update={"trace": traces.get(each.message_id)}) for each in pending
        ]
        ids = {envelope.message_id for envelope in pending}
        came = [envelope for envelope in self._state.inbox if envelope.message_id not in ids]
        allowed = [
            *(each for each in pending if can_flow(each.label, self._state.clearance)),
            *came,
        ]
        taken = [envelope for envelope in allowed if self._takes(envelope)]
        self._state.inbox[:] = taken
        self._count()
        return [envelope for envelope in (*pending, *came) if envelope not in taken]

    def clear(self) -> list[Envelope]:
        """Remove everything that waits; the ids may be sent again."""
        dropped = list(self._state.inbox)
        self._state.inbox.clear()
        self._count()
        return dropped

    def _takes(self, envelope: Envelope) -> bool:
        """Whether information may flow here from the session that sent it; people may tell what
        the clearance lets in."""
        if envelope.cleared or envelope.sender.kind is not SenderKind.SESSION:
            return True
        # A reset that was accepted counts: the session is PUBLIC when it comes to this message.
        label = Label.PUBLIC if self._state.resets else self._state.label
        return can_flow(envelope.label, join(label, self._state.intake or label))

    def _count(self) -> None:
        inbox = self._state.inbox
        self._known = {*self._state.seen, *(each.message_id for each in inbox)}
        self._bytes = sum(envelope.size for envelope in inbox)
        self._of = Counter(map(_sender, inbox))
        # Who is in turn stays so, and who is new comes after them.
        order = dict.fromkeys((*self._state.ring, *self._of))
        self._state.ring[:] = [sender for sender in order if self._of[sender]]


def _sender(envelope: Envelope) -> str:
    """Who is served in turn, in eight characters: thousands of senders must fit into the state.
    Two that share a name by chance are served as one."""
    sender = envelope.sender
    return f"{zlib.crc32(f'{sender.kind} {sender.id}'.encode()):08x}"
