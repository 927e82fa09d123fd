"""How a message gets in: checked, laid into the mailbox, admitted by the workflow.

Invariant: what is refused leaves nothing behind; what may have been admitted stays, so that
sending it again with the same id is safe.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from gateway.workflows import SessionWorkflows
from perdure.config import Settings
from perdure.domain.envelopes import Envelope, Sender, Ticket
from perdure.domain.errors import Conflict, Denied, InvalidArgument, LimitExceeded
from perdure.domain.ids import check_message_id, new_message_id
from perdure.domain.keys import SessionKey
from perdure.domain.labels import Label, can_flow
from perdure.domain.replies import ReplyTo
from perdure.store import Store
from perdure.store.mailbox import Place, Posted
from perdure.store.seeding import Earlier

#: Sessions whose agent is remembered.
_AGENTS_KNOWN = 10_000


class Admission:
    """Sends messages to sessions."""

    def __init__(self, settings: Settings, store: Store, workflows: SessionWorkflows) -> None:
        self._settings = settings
        self._store = store
        self._workflows = workflows
        #: The agent of a session is fixed when it is first opened, so it is asked for once.
        self._agents: OrderedDict[str, str] = OrderedDict()

    async def send(
        self,
        session_key: str,
        text: str,
        agent: str | None,
        message_id: str | None,
        label: Label,
        sender: Sender | None,
        exchange: str | None = None,
        earlier: Sequence[Earlier] = (),
    ) -> tuple[Ticket, Posted]:
        """The ticket, and where the message was found to lie before it was admitted.

        Raises:
            PerdureError: as `SessionClient.send` says.
        """
        key = SessionKey.parse(session_key)
        message_id = new_message_id() if message_id is None else check_message_id(message_id)
        agent = await self._checked(key, text, agent, label)
        envelope = Envelope(
            message_id=message_id, sender=sender or Sender(), label=label, exchange=exchange
        )
        if earlier:
            posted = await self._store.seeding.post(session_key, agent, envelope, text, earlier)
        else:
            posted = await self._store.mailbox.post(session_key, envelope, text)
        if posted.place is Place.TAKEN:
            ticket = Ticket(message_id=message_id, session_key=session_key, duplicate=True)
            return ticket, posted
        try:
            return await self._workflows.admit(key, agent, envelope), posted
        except (InvalidArgument, LimitExceeded, Denied, Conflict):
            # Refused for certain: nothing may be left behind that a later run could pick up.
            await self._store.mailbox.withdraw(session_key, message_id)
            raise

    async def deliver(
        self, session_key: str, text: str, agent: str | None, envelope: Envelope, to: ReplyTo | None
    ) -> Ticket:
        """The ticket of a message that no worker has taken yet.

        Raises:
            PerdureError: as `SessionClient.deliver` says.
        """
        key = SessionKey.parse(session_key)
        agent = await self._checked(key, text, agent, envelope.label)
        waiting = await self._store.mailbox.count(session_key)
        limit = self._settings.limits.inbox
        if waiting >= limit:
            raise LimitExceeded(
                f"{waiting} messages wait for this session; limits.inbox is {limit}.",
                "Send again when some have been answered, or raise limits.inbox.",
            )
        if to is None:
            posted = await self._store.mailbox.post(session_key, envelope, text)
        else:
            posted = await self._store.replies.post(session_key, envelope, text, to)
        if posted.place is not Place.TAKEN:
            # Also what lay there already: whoever laid it down may have died before this.
            await self._workflows.deliver(key, agent, envelope)
        return Ticket(
            message_id=envelope.message_id,
            session_key=session_key,
            position=waiting,
            duplicate=posted.place is not Place.NEW,
        )

    async def _checked(self, key: SessionKey, text: str, agent: str | None, label: Label) -> str:
        """Who answers, if a message may be sent to them."""
        self._check_text(text)
        agent = await self._agent_of(key, agent)
        clearance = self._settings.agent(agent).clearance
        if not can_flow(label, clearance):
            raise Denied(
                f"A {label} message is above the clearance of agent {agent}, {clearance}.",
                "Use an agent with a higher clearance.",
            )
        return agent

    def _check_text(self, text: str) -> None:
        if not text.strip():
            raise InvalidArgument("The message is empty.", "Send some text.")
        size = bytes_of("The message", text)
        limit = self._settings.limits.message_bytes
        if size > limit:
            raise LimitExceeded(
                f"The message has {size} bytes; limits.message_bytes is {limit}.",
                "Put the content into a file of the workspace and name it in the message.",
            )

    async def _agent_of(self, key: SessionKey, asked: str | None) -> str:
        session_key = str(key)
        if session_key not in self._agents:
            row = await self._store.sessions.get(session_key)
            if row is None:
                return self._settings.agent_for(key, asked)
            self._agents[session_key] = row.agent
            if len(self._agents) > _AGENTS_KNOWN:
                self._agents.popitem(last=False)
        agent = self._agents[session_key]
        if asked is not None and asked != agent:
            raise Conflict(
                f"The session {key} belongs to agent {agent}, not to {asked}.",
                "Leave the agent out, or use another session key.",
            )
        return agent


def bytes_of(what: str, text: str) -> int:
    """How many bytes a text has in UTF-8. JSON can spell lone surrogates, which have none: they
    could be neither kept nor given back.

    Raises:
        InvalidArgument: when it has one; `what` names the text.
    """
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"{what} is not valid Unicode at position {error.start}.",
            "Send UTF-8 text without lone surrogates.",
        ) from error
