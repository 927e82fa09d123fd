"""Conversing with sessions: send, ask, wait, listen; the half of `SessionClient` that has words.

Invariant: a message is laid into the mailbox before it is admitted, under an id that names it for
ever. Sending again with the same id, after any failure, is safe and answers the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.live import LiveSession
from gateway.shared import Shared
from gateway.sight import Sight
from gateway.telling import Telling
from gateway.waiting import Waiting, timed_out
from perdure.domain.envelopes import Envelope, Sender, Ticket
from perdure.domain.exchanges import ExchangeResult, Mode
from perdure.domain.ids import check_message_id, new_message_id
from perdure.domain.keys import SessionKey
from perdure.domain.labels import Label
from perdure.domain.replies import ReplyTo
from perdure.store.mailbox import Place, Posted
from perdure.store.seeding import Earlier
from perdure.store.transcript import TurnResult


class Conversing:
    """What one caller says to sessions, and what they answer."""

    def __init__(self, shared: Shared, sight: Sight) -> None:
        self.settings = shared.settings
        self.store = shared.store
        self._shared = shared
        self._sight = sight
        self._waiting = Waiting(shared.store, sight)

    async def send(
        self,
        session_key: str,
        text: str,
        *,
        agent: str | None = None,
        message_id: str | None = None,
        label: Label = Label.PUBLIC,
        sender: Sender | None = None,
        earlier: Sequence[Earlier] = (),
    ) -> Ticket:
        """Admit a message durably; the answer comes later. A new key starts a new session.

        Args:
            session_key: `tenant:user[~marker~value]…`.
            text: up to `limits.message_bytes` bytes of UTF-8.
            agent: who answers in a new session; default from the key or the settings.
            message_id: names the message for ever; the same id again is the same message.
            label: the level of what the text tells.
            sender: who sends it; a caller sends in their own name, whatever stands here.
            earlier: what was said elsewhere before it, for a session that is new.

        Raises:
            InvalidArgument, LimitExceeded, Denied: nothing was sent.
            NotFound: when the session is not there for the caller; nothing was sent.
            Conflict: the id names another text, or the session belongs to another agent.
            Unavailable: not admitted, or not known to be: send again with the same id.
        """
        ticket, _ = await self._send(session_key, text, agent, message_id, label, sender, earlier)
        return ticket

    async def deliver(
        self,
        session_key: str,
        text: str,
        *,
        agent: str | None = None,
        message_id: str | None = None,
        label: Label = Label.PUBLIC,
        sender: Sender | None = None,
        reply_to: ReplyTo | None = None,
    ) -> Ticket:
        """Send a message that is durable as soon as this returns, whether a worker is there or
        not. With `reply_to` the answer leaves by that channel, once; else it stays in the session.

        Raises:
            PerdureError: as `send` does.
        """
        await self._sight.check_message(session_key, label)
        envelope = Envelope(
            message_id=new_message_id() if message_id is None else check_message_id(message_id),
            sender=self._sight.bounds.sender(sender),
            label=label,
            replies=reply_to is not None,
        )
        admission = self._shared.admission
        return await admission.deliver(session_key, text, agent, envelope, reply_to)

    async def ask(
        self,
        session_key: str,
        text: str,
        *,
        timeout: float | None = None,
        agent: str | None = None,
        message_id: str | None = None,
        label: Label = Label.PUBLIC,
        sender: Sender | None = None,
    ) -> TurnResult:
        """Send a message and wait for the end of its turn, up to `timeout` seconds in all.

        A turn that failed or was interrupted is a result too: see `state` and `error`.

        Raises:
            TimedOut: no reply yet; it says whether the message is delivered. The same id asks on.
            PerdureError: as `send` does.
        """
        message_id = new_message_id() if message_id is None else message_id
        delivered = False
        try:
            async with asyncio.timeout(timeout):
                _, posted = await self._send(session_key, text, agent, message_id, label, sender)
                delivered = True
                if posted.place is Place.TAKEN:
                    return await self.wait(session_key, message_id)
                return await self._waiting.turn(session_key, message_id, posted.cursor)
        except TimeoutError as error:
            raise timed_out(session_key, message_id, timeout, delivered) from error

    async def wait(
        self, session_key: str, message_id: str, *, timeout: float | None = None
    ) -> TurnResult:
        """The end of the turn that answers a message sent before.

        Raises:
            TimedOut: no reply yet.
            NotFound: when the message was never sent, or dropped by a reset before its turn.
        """
        return await self._waiting.wait(session_key, message_id, timeout)

    async def turn(self, session_key: str, message_id: str) -> TurnResult | None:
        """The turn of a message as far as it is; None while the message waits for it.

        Raises:
            NotFound: as `wait` does.
        """
        return await self._waiting.so_far(session_key, message_id)

    async def tell(
        self,
        from_key: str,
        to_key: str,
        text: str,
        *,
        mode: Mode = Mode.FIRE_AND_FORGET,
        timeout: float = 60.0,
        max_turns: int = 3,
        message_id: str | None = None,
    ) -> ExchangeResult:
        """Let one session say something to another, as its tool `sessions_send` would.

        The message is the first session's, at its label. What `wait` waits for comes back here and
        not to that session; the answers of a `ping-pong` are carried from one to the other by this
        call, as messages of their own, and end with it.

        `timeout` is seconds for all of it, `max_turns` those of a ping-pong after the first answer.
        The first message is sent once under its `message_id`.

        Raises:
            NotFound: when there is no such session, or the first may not see the second.
            Denied: when the second may not know what the first does.
            LimitExceeded, InvalidArgument, Unavailable: as `send` does.
        """
        sender = await self._sight.session(from_key)
        telling = Telling(
            self.settings,
            self.store,
            self._shared.admission,
            self._sight,
            self._waiting.turn,
            mode,
            timeout,
        )
        target = str(SessionKey.parse(to_key))
        return await telling.tell(from_key, target, text, sender.label, max_turns, message_id)

    def live(self, session_key: str, *, after: int) -> LiveSession:
        """The session's turns while they happen, its text as it is spoken; it may be new.
        See `LiveSession`."""
        return LiveSession(self.store, session_key, after=after, sight=self._sight)

    async def _send(
        self,
        session_key: str,
        text: str,
        agent: str | None,
        message_id: str | None,
        label: Label,
        sender: Sender | None,
        earlier: Sequence[Earlier] = (),
    ) -> tuple[Ticket, Posted]:
        await self._sight.check_message(session_key, label)
        sender = self._sight.bounds.sender(sender)
        return await self._shared.admission.send(
            session_key, text, agent, message_id, label, sender, earlier=earlier
        )
