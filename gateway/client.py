"""`SessionClient`: the typed way in, on which every other way in stands.

Invariant: a message is laid into the mailbox before it is admitted, under an id that names it for
ever. Sending again with the same id, after any failure, is safe and answers the same.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

from temporalio.client import Client
from ulid import ULID

from gateway.connection import connect
from gateway.shapes import SessionList, SessionStatus, status_of, summary_of
from gateway.workflows import SessionWorkflows
from perdure.config import Settings
from perdure.domain.envelopes import Envelope, Sender, Ticket
from perdure.domain.errors import (
    Conflict,
    Denied,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    TimedOut,
)
from perdure.domain.ids import check_message_id, new_message_id
from perdure.domain.keys import Kind, SessionKey
from perdure.domain.labels import Label, can_flow
from perdure.domain.states import TURN_ENDS, EventKind, SessionState, TurnState
from perdure.store import Store
from perdure.store.mailbox import Place, Posted
from perdure.store.outbox import Event
from perdure.store.sessions import SessionRow
from perdure.store.transcript import HistoryPage, TurnResult

#: Sessions whose agent a client remembers.
_AGENTS_KNOWN = 10_000


class SessionClient:
    """Starts, asks, watches, resets and closes sessions. Open it with `SessionClient.connect`."""

    def __init__(self, settings: Settings, temporal: Client, store: Store) -> None:
        self.settings = settings
        self.temporal = temporal
        self.store = store
        #: The agent of a session is fixed when it is first opened, so it is asked for once.
        self._agents: OrderedDict[str, str] = OrderedDict()
        self._workflows = SessionWorkflows(temporal, settings.temporal.queue)

    @classmethod
    @asynccontextmanager
    async def connect(cls, settings: Settings) -> AsyncIterator[SessionClient]:
        """A client on the settings' cluster and store, closed when the block ends.

        Raises:
            Unavailable: when Temporal cannot be reached.
        """
        temporal = await connect(settings)
        store = await Store.open(settings.store_url)
        try:
            yield cls(settings, temporal, store)
        finally:
            await store.close()

    # Messages --------------------------------------------------------------------------------

    async def send(
        self,
        session_key: str,
        text: str,
        *,
        agent: str | None = None,
        message_id: str | None = None,
        label: Label = Label.PUBLIC,
        sender: Sender | None = None,
    ) -> Ticket:
        """Admit a message durably; the answer comes later. A new key starts a new session.

        Args:
            session_key: `tenant:user[~marker~value]…`.
            text: up to `limits.message_bytes` bytes of UTF-8.
            agent: who answers in a new session; default from the key or the settings.
            message_id: names the message for ever; the same id again is the same message.
            label: the level of what the text tells.
            sender: who sends it.

        Raises:
            InvalidArgument, LimitExceeded, Denied: nothing was sent.
            Conflict: the id names another text, or the session belongs to another agent.
            Unavailable: not admitted, or not known to be: send again with the same id.
        """
        ticket, _ = await self._send(session_key, text, agent, message_id, label, sender)
        return ticket

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
        """Send a message and wait up to `timeout` seconds for the end of its turn.

        A turn that failed or was interrupted is a result too: see `state` and `error`.

        Raises:
            TimedOut: delivered, no reply yet; `wait` with the same id goes on waiting.
            PerdureError: as `send` does.
        """
        ticket, posted = await self._send(session_key, text, agent, message_id, label, sender)
        if posted.place is Place.TAKEN:
            return await self.wait(session_key, ticket.message_id, timeout=timeout)
        return await self._await_turn(session_key, ticket.message_id, posted.cursor, timeout)

    async def wait(
        self, session_key: str, message_id: str, *, timeout: float | None = None
    ) -> TurnResult:
        """The end of the turn that answers a message sent before.

        Raises:
            TimedOut: no reply yet.
            NotFound: when the message was never sent, or dropped by a reset before its turn.
        """
        cursor = await self.store.outbox.newest_id()
        waits = await self.store.mailbox.holds(session_key, message_id)
        result = await self.store.transcript.turn_of(session_key, message_id)
        if result is None and not waits:
            raise NotFound(
                f"No message {message_id} waits for the session {session_key}.",
                "It was never sent, or was discarded before its turn. Send it again if it still "
                "matters.",
            )
        if result is not None and result.state is not TurnState.RUNNING:
            return result
        return await self._await_turn(session_key, message_id, cursor, timeout)

    async def interrupt(self, session_key: str) -> int | None:
        """Stop the turn under way and keep what it has; its number, or None when none runs.

        Raises:
            NotFound: when there is no such session.
        """
        await self._known(session_key)
        return await self._workflows.interrupt(session_key)

    # Sessions --------------------------------------------------------------------------------

    async def status(self, session_key: str) -> SessionStatus:
        """A session in figures.

        Raises:
            NotFound: when there is no such session.
        """
        row = await self._known(session_key)
        return status_of(row, self.settings, await self.store.mailbox.count(session_key))

    async def sessions(
        self,
        *,
        kind: Kind | None = None,
        since_minutes: float | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> SessionList:
        """A page of sessions, last active first."""
        rows, total = await self.store.sessions.list(
            kind=kind, since_minutes=since_minutes, limit=limit, offset=offset
        )
        return SessionList(sessions=tuple(map(summary_of, rows)), total=total)

    async def history(self, session_key: str, *, limit: int = 20, offset: int = 0) -> HistoryPage:
        """A page of the transcript: newest page first, each page in order. `limit` up to 200.

        Raises:
            NotFound: when there is no such session.
            InvalidArgument: for a limit or an offset out of range.
        """
        if not 1 <= limit <= 200 or offset < 0:
            raise InvalidArgument(
                f"limit {limit}, offset {offset} are out of range.",
                "limit is 1 to 200, offset 0 or more.",
            )
        await self._known(session_key)
        return await self.store.transcript.page(session_key, limit, offset)

    async def events(self, session_key: str, *, after: int = 0) -> AsyncIterator[Event]:
        """Every event of a session after a cursor, each once, for ever.

        Raises:
            NotFound: when there is no such session.
        """
        await self._known(session_key)
        async with aclosing(self.store.outbox.follow(session_key, after)) as events:
            async for event in events:
                yield event

    async def reset(self, session_key: str) -> int:
        """Go on with an empty context; the transcript stays in the store. Returns the number of
        waiting messages that were discarded.

        Raises:
            NotFound: when there is no such session.
        """
        row = await self._known(session_key)
        request_id = str(ULID())
        cursor = await self.store.outbox.newest_id()
        await self._workflows.reset(SessionKey.parse(session_key), row.agent, request_id)
        done = await self._event(
            session_key,
            cursor,
            lambda event: (
                event.kind is EventKind.SESSION_RESET and event.payload["request_id"] == request_id
            ),
        )
        return int(done.payload["dropped"])

    async def close(self, session_key: str) -> None:
        """Let a session answer what it has, then end it. A later message opens it again.

        Raises:
            NotFound: when there is no such session.
        """
        row = await self._known(session_key)
        if row.state is SessionState.CLOSED:
            return
        cursor = await self.store.outbox.newest_id()
        await self._workflows.close(SessionKey.parse(session_key), row.agent)
        await self._event(session_key, cursor, lambda event: event.kind is EventKind.SESSION_CLOSED)

    # Parts -----------------------------------------------------------------------------------

    async def _send(
        self,
        session_key: str,
        text: str,
        agent: str | None,
        message_id: str | None,
        label: Label,
        sender: Sender | None,
    ) -> tuple[Ticket, Posted]:
        key = SessionKey.parse(session_key)
        message_id = new_message_id() if message_id is None else check_message_id(message_id)
        self._check_text(text)
        agent = await self._agent_of(key, agent)
        clearance = self.settings.agent(agent).clearance
        if not can_flow(label, clearance):
            raise Denied(
                f"A {label} message is above the clearance of agent {agent}, {clearance}.",
                "Use an agent with a higher clearance.",
            )
        envelope = Envelope(message_id=message_id, sender=sender or Sender(), label=label)
        posted = await self.store.mailbox.post(session_key, envelope, text)
        if posted.place is Place.TAKEN:
            ticket = Ticket(message_id=message_id, session_key=session_key, duplicate=True)
            return ticket, posted
        try:
            return await self._workflows.admit(key, agent, envelope), posted
        except (InvalidArgument, LimitExceeded, Denied, Conflict):
            # Refused for certain: nothing may be left behind that a later run could pick up.
            await self.store.mailbox.withdraw(session_key, message_id)
            raise

    def _check_text(self, text: str) -> None:
        if not text.strip():
            raise InvalidArgument("The message is empty.", "Send some text.")
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise InvalidArgument(
                f"The message is not valid Unicode at position {error.start}.",
                "Send UTF-8 text without lone surrogates.",
            ) from error
        limit = self.settings.limits.message_bytes
        if size > limit:
            raise LimitExceeded(
                f"The message has {size} bytes; limits.message_bytes is {limit}.",
                "Put the content into a file of the workspace and name it in the message.",
            )

    async def _agent_of(self, key: SessionKey, asked: str | None) -> str:
        session_key = str(key)
        if session_key not in self._agents:
            row = await self.store.sessions.get(session_key)
            if row is None:
                return self.settings.agent_for(key, asked)
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

    async def _known(self, session_key: str) -> SessionRow:
        SessionKey.parse(session_key)
        row = await self.store.sessions.get(session_key)
        if row is None:
            raise NotFound(
                f"There is no session {session_key}.", "`perdure sessions` lists what there is."
            )
        return row

    async def _event(self, session_key: str, after: int, wanted: Callable[[Event], bool]) -> Event:
        async with aclosing(self.store.outbox.follow(session_key, after, near=True)) as events:
            async for event in events:
                if wanted(event):
                    return event
        raise AssertionError("an outbox never ends")

    async def _await_turn(
        self, session_key: str, message_id: str, after: int, timeout: float | None
    ) -> TurnResult:
        ends = TURN_ENDS | {EventKind.MESSAGE_DROPPED}
        try:
            async with asyncio.timeout(timeout):
                event = await self._event(
                    session_key,
                    after,
                    lambda event: event.kind in ends and event.payload["message_id"] == message_id,
                )
        except TimeoutError as error:
            raise TimedOut(
                f"No reply to {message_id} within {timeout:g} s; it is delivered and will be "
                "answered.",
                f"Wait on with the same id: `perdure ask {session_key} … --message-id "
                f"{message_id}`.",
            ) from error
        result = await self.store.transcript.turn_of(session_key, message_id)
        if event.kind is EventKind.MESSAGE_DROPPED or result is None:
            raise NotFound(
                f"The message {message_id} was discarded before its turn "
                f"({event.payload.get('reason')}).",
                "Send it again if it still matters.",
            )
        return result
