"""The inbox: admitted envelopes in order, each id once.

Invariant: an id is admitted at most once while it waits and for the `WINDOW` admissions after;
the store answers for all before that. What cannot be admitted is refused before it is recorded.
"""

from __future__ import annotations

from perdure.domain.envelopes import Envelope
from perdure.domain.errors import Denied, LimitExceeded
from perdure.domain.labels import Label, can_flow
from workflows.state import SessionState

#: Ids remembered after their turn. An id older than this was taken into the store's transcript
#: long ago, where a repeated message is recognised before it reaches the workflow.
WINDOW = 1_000


class Inbox:
    """The queue of a session, over its carried state."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._known = set(state.seen)
        #: Replaced by the session's profile as soon as it is read.
        self.limit = 5_000
        self.clearance = Label.RESTRICTED

    def __len__(self) -> int:
        return len(self._state.inbox)

    def check(self, envelope: Envelope) -> None:
        """Refuse what may not come in.

        Raises:
            LimitExceeded: when the inbox is full.
            Denied: when the message's label is above the agent's clearance.
        """
        if envelope.message_id in self._known:
            return
        if len(self) >= self.limit:
            raise LimitExceeded(
                f"{len(self)} messages wait for this session; the limit is {self.limit}.",
                "Send again when some have been answered, or raise limits.inbox.",
            )
        if not can_flow(envelope.label, self.clearance):
            raise Denied(
                f"A {envelope.label} message is above the agent's clearance, {self.clearance}.",
                "Use an agent with a higher clearance.",
            )

    def admit(self, envelope: Envelope) -> bool:
        """Queue an envelope; False when its id was admitted before."""
        if envelope.message_id in self._known:
            return False
        self._state.inbox.append(envelope)
        self._state.seen.append(envelope.message_id)
        self._known.add(envelope.message_id)
        excess = len(self._state.seen) - WINDOW - len(self._state.inbox)
        if excess > 0:
            self._known.difference_update(self._state.seen[:excess])
            del self._state.seen[:excess]
        return True

    def take(self) -> Envelope:
        """The oldest envelope, removed."""
        return self._state.inbox.pop(0)

    def clear(self) -> list[Envelope]:
        """Everything that waits, removed."""
        dropped = list(self._state.inbox)
        self._state.inbox.clear()
        return dropped
