"""`SessionClient`: the typed way in, on which every other way in stands.

Invariant: a message is laid into the mailbox before it is admitted, under an id that names it for
ever. Sending again with the same id, after any failure, is safe and answers the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from functools import cached_property

from temporalio.client import Client
from ulid import ULID

from gateway.admission import Admission
from gateway.approving import decide
from gateway.connection import connect
from gateway.contexts import ContextClient
from gateway.looking import Looking, no_session
from gateway.memory import MemoryClient
from gateway.reading import turn_for_people
from gateway.runs import RunClient
from gateway.telling import Telling
from gateway.workflows import SessionWorkflows
from perdure.config import Settings
from perdure.domain.approvals import Approval, ApprovalList, ApprovalState
from perdure.domain.envelopes import Sender, Ticket
from perdure.domain.errors import (
    Denied,
    NotFound,
    TimedOut,
    Unavailable,
)
from perdure.domain.exchanges import ExchangeResult, Mode
from perdure.domain.ids import new_message_id
from perdure.domain.keys import Kind, SessionKey
from perdure.domain.labels import Label
from perdure.domain.messages import Role
from perdure.domain.states import TURN_ENDS, EventKind, SessionState, TurnState
from perdure.guard import Guard
from perdure.shapes import SessionList, SessionStatus
from perdure.store import Store
from perdure.store.mailbox import Place
from perdure.store.outbox import Event
from perdure.store.search import Found
from perdure.store.session_views import SessionFilter
from perdure.store.sessions import SessionRow
from perdure.store.transcript import HistoryPage, TurnResult


class SessionClient:
    """Starts, asks, watches, resets and closes sessions. Open it with `SessionClient.connect`."""

    def __init__(self, settings: Settings, temporal: Client | None, store: Store) -> None:
        self.settings = settings
        self.store = store
        self._temporal = temporal
        self._looking = Looking(settings, store)
        self._guard = Guard(settings)
        self._workflows = SessionWorkflows(lambda: self.temporal, settings.temporal.queue)
        self._admission = Admission(settings, store, self._workflows)
        #: The runs of sub-agents.
        self.runs = RunClient(settings, store, lambda: self.temporal)
        #: What models are given of sessions, and the summaries it is made of.
        self.context = ContextClient(settings, store)

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, settings: Settings, *, reading: bool = False
    ) -> AsyncIterator[SessionClient]:
        """A client on the settings' cluster and store, closed when the block ends.

        Args:
            settings: which cluster and which store.
            reading: do without the cluster; what only reads the store works, the rest does not.

        Raises:
            Unavailable: when Temporal cannot be reached, or the store cannot be opened.
        """
        temporal = None if reading else await connect(settings)
        store = await Store.open(
            settings.store_url,
            None if reading else settings.audit_files,
            readers=settings.store.pool_size,
        )
        try:
            yield cls(settings, temporal, store)
        finally:
            await store.close()

    @property
    def temporal(self) -> Client:
        """The connection to the cluster.

        Raises:
            Unavailable: when this client only reads.
        """
        if self._temporal is None:
            raise Unavailable("This client only reads the store.", "Connect it to the cluster.")
        return self._temporal

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
        ticket, _ = await self._admission.send(session_key, text, agent, message_id, label, sender)
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
                _, posted = await self._admission.send(
                    session_key, text, agent, message_id, label, sender
                )
                delivered = True
                if posted.place is Place.TAKEN:
                    return await self.wait(session_key, message_id)
                return await self._await_turn(session_key, message_id, posted.cursor)
        except TimeoutError as error:
            raise _timed_out(session_key, message_id, timeout, delivered) from error

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
        result = await self._turn_of(session_key, message_id)
        if result is None and not waits:
            raise NotFound(
                f"No message {message_id} waits for the session {session_key}.",
                "It was never sent, or was discarded before its turn. Send it again if it still "
                "matters.",
            )
        if result is not None and result.state is not TurnState.RUNNING:
            return result
        try:
            async with asyncio.timeout(timeout):
                return await self._await_turn(session_key, message_id, cursor)
        except TimeoutError as error:
            raise _timed_out(session_key, message_id, timeout, delivered=True) from error

    async def tell(
        self,
        from_key: str,
        to_key: str,
        text: str,
        *,
        mode: Mode = Mode.FIRE_AND_FORGET,
        timeout: float = 60.0,
        max_turns: int = 3,
    ) -> ExchangeResult:
        """Let one session say something to another, as its tool `sessions_send` would.

        The message is the first session's, at its label. What `wait` waits for comes back here and
        not to that session; the answers of a `ping-pong` are carried from one to the other by this
        call, as messages of their own, and end with it.

        `timeout` is seconds for all of it, `max_turns` those of a ping-pong after the first answer.

        Raises:
            NotFound: when there is no such session, or the first may not see the second.
            Denied: when the second may not know what the first does.
            LimitExceeded, InvalidArgument, Unavailable: as `send` does.
        """
        sender = await self._known(from_key)
        telling = Telling(
            self.settings, self.store, self._admission, self._await_turn, mode, timeout
        )
        target = str(SessionKey.parse(to_key))
        return await telling.tell(from_key, target, text, sender.label, max_turns)

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
        return await self._looking.status(session_key)

    async def sessions(
        self,
        *,
        kind: Kind | None = None,
        since_minutes: float | None = None,
        state: SessionState | None = None,
        agent: str | None = None,
        label: Label | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> SessionList:
        """A page of the sessions asked for, last active first; what is None is not asked."""
        asked = SessionFilter.of(
            kind=kind, since_minutes=since_minutes, state=state, agent=agent, label=label
        )
        return await self._looking.sessions(asked, limit, offset)

    async def history(
        self, session_key: str, *, limit: int = 20, offset: int = 0, before: int | None = None
    ) -> HistoryPage:
        """A page of the transcript: newest page first, each page in order. `limit` up to 200.

        With `before`, a sequence number, only of what was said before that message: pages do not
        shift while the session goes on. Messages above `gateway.level` are there without their
        words.

        Raises:
            NotFound: when there is no such session.
            InvalidArgument: for a limit or an offset out of range.
        """
        return await self._looking.history(session_key, limit, offset, before)

    async def search(
        self,
        query: str,
        *,
        session_key: str | None = None,
        role: Role | None = None,
        limit: int = 10,
        offset: int = 0,
    ) -> Found:
        """A page of the messages that match, best first. Messages above `gateway.level` are not
        found.

        Args:
            query: words, `"a phrase"`, OR, NOT or `-word`, `( )`, `word*`.
            session_key: only in this session.
            role: only of this speaker.
            limit: up to 200.
            offset: how many of the best to skip.

        Raises:
            InvalidArgument: for a query that asks nothing, or a number out of range.
            NotFound: when there is no such session.
        """
        return await self._looking.search(query, session_key, role, limit, offset)

    async def events(self, session_key: str, *, after: int = 0) -> AsyncIterator[Event]:
        """Every event of a session after a cursor, each once, for ever.

        Raises:
            NotFound: when there is no such session.
        """
        await self._known(session_key)
        async with aclosing(self.store.outbox.follow(session_key, after)) as events:
            async for event in events:
                yield event

    async def reset(self, session_key: str, *, by: str = "user") -> int:
        """Go on with an empty context; the transcript stays in the store. Returns the number of
        waiting messages that were discarded.

        Raises:
            NotFound: when there is no such session.
        """
        row = await self._known(session_key)
        decision = self._guard.reset(session_key, row.agent, row.label, by)
        await self.store.record(self._guard.recorded(decision, session_key))
        if not decision.goes_on:
            raise Denied(decision.reason, f"Decided by {decision.decided_by}.")
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

    # Approvals -------------------------------------------------------------------------------

    async def approvals(
        self,
        *,
        session_key: str | None = None,
        state: ApprovalState | None = ApprovalState.PENDING,
        limit: int = 50,
        offset: int = 0,
    ) -> ApprovalList:
        """A page of the calls that wait for a person, newest first; `state` None is all."""
        return await self.store.approvals.list(
            session_key=session_key, state=state, limit=limit, offset=offset
        )

    async def decide(
        self,
        approval_id: str,
        *,
        approve: bool,
        by: str,
        reason: str = "",
        arguments: str | None = None,
    ) -> Approval:
        """Record a person's decision on a call that waits, and wake its session.

        Args:
            approval_id: as `approvals` lists it.
            approve: False denies.
            by: who decides.
            reason: what the model reads, and the audit trail keeps.
            arguments: JSON of other arguments to run the call with, if it is approved.

        Raises:
            NotFound: when there is no such approval.
            Conflict: when it was decided before, or is over.
            InvalidArgument: when the arguments are no JSON object, or come with a denial.
        """
        return await decide(
            self.store,
            self._workflows,
            approval_id,
            approve=approve,
            by=by,
            reason=reason,
            arguments=arguments,
        )

    @cached_property
    def memory(self) -> MemoryClient:
        """What agents remember, for people."""
        return MemoryClient(self.settings, lambda: self.temporal)

    # Parts -----------------------------------------------------------------------------------

    async def _turn_of(self, session_key: str, message_id: str) -> TurnResult | None:
        level = self.settings.gateway.level
        return await turn_for_people(self.store, level, session_key, message_id)

    async def _known(self, session_key: str) -> SessionRow:
        SessionKey.parse(session_key)
        row = await self.store.sessions.get(session_key)
        if row is None:
            raise no_session(session_key)
        return row

    async def _event(self, session_key: str, after: int, wanted: Callable[[Event], bool]) -> Event:
        async with aclosing(self.store.outbox.follow(session_key, after, near=True)) as events:
            async for event in events:
                if wanted(event):
                    return event
        raise AssertionError("an outbox never ends")

    async def _await_turn(self, session_key: str, message_id: str, after: int) -> TurnResult:
        ends = TURN_ENDS | {EventKind.MESSAGE_DROPPED}
        event = await self._event(
            session_key,
            after,
            lambda event: event.kind in ends and event.payload["message_id"] == message_id,
        )
        result = await self._turn_of(session_key, message_id)
        if event.kind is EventKind.MESSAGE_DROPPED or result is None:
            raise NotFound(
                f"The message {message_id} was discarded before its turn "
                f"({event.payload.get('reason')}).",
                "Send it again if it still matters.",
            )
        return result


def _timed_out(
    session_key: str, message_id: str, timeout: float | None, delivered: bool
) -> TimedOut:
    told = "it is delivered and will be answered" if delivered else "its delivery is not confirmed"
    return TimedOut(
        f"No reply to {message_id} within {timeout or 0:g} s; {told}.",
        f"Ask on with the same id: `perdure ask {session_key} … --message-id {message_id}`.",
    )
