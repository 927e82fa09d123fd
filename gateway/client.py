"""`SessionClient`: the typed way in, on which every other way in stands.

Invariant: whatever it shows or does, it does as its caller may; `gateway.sight` says what that is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from functools import cached_property

from temporalio.client import Client
from ulid import ULID

from gateway.approving import Approving
from gateway.bounds import Bounds
from gateway.connection import connect
from gateway.contexts import ContextClient
from gateway.conversing import Conversing
from gateway.keys import KeyClient
from gateway.looking import Looking
from gateway.memory import MemoryClient
from gateway.refusals import Refusals
from gateway.runs import RunClient
from gateway.scheduling import ScheduleClient
from gateway.shared import Shared
from gateway.sight import Sight
from perdure.config import Settings
from perdure.domain.access import Caller
from perdure.domain.approvals import Approval, ApprovalList, ApprovalState
from perdure.domain.errors import Denied, Unavailable
from perdure.domain.keys import Kind, SessionKey
from perdure.domain.labels import Label
from perdure.domain.messages import Role
from perdure.domain.states import EventKind, SessionState
from perdure.shapes import SessionList, SessionStatus
from perdure.store import Store
from perdure.store.marks import Mark
from perdure.store.outbox import Event
from perdure.store.search import Found
from perdure.store.session_views import SessionFilter
from perdure.store.transcript import HistoryPage


class SessionClient(Conversing):
    """Starts, asks, watches, resets and closes sessions. Open it with `SessionClient.connect`.

    It is a person's at this machine, who looks after every session; `on_behalf_of` gives one for
    somebody else. For them, what is above their clearance or of another tenant is not there, in
    every method; and they send, decide and steer in their own name. What is said to sessions and
    what they answer is in `Conversing`.
    """

    def __init__(
        self,
        settings: Settings,
        temporal: Client | None,
        store: Store,
        caller: Caller | None = None,
        shared: Shared | None = None,
    ) -> None:
        self._temporal = temporal
        shared = shared or Shared(settings, lambda: self.temporal, store)
        sight = Sight(store, Bounds(settings.gateway.level, caller), shared.refusals)
        super().__init__(shared, sight)
        self._looking = Looking(settings, store, sight)
        self._approving = Approving(store, shared.workflows, sight)

    def on_behalf_of(self, caller: Caller) -> SessionClient:
        """This client as `caller` has it; it is this one's to close."""
        return SessionClient(self.settings, self._temporal, self.store, caller, self._shared)

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
        client = cls(settings, temporal, store)
        try:
            yield client
        finally:
            await client.refusals.settle()
            await store.close()

    @property
    def refusals(self) -> Refusals:
        """Where it is noted what a caller was refused."""
        return self._shared.refusals

    @property
    def temporal(self) -> Client:
        """The connection to the cluster.

        Raises:
            Unavailable: when this client only reads.
        """
        if self._temporal is None:
            raise Unavailable("This client only reads the store.", "Connect it to the cluster.")
        return self._temporal

    # Sessions --------------------------------------------------------------------------------

    async def interrupt(self, session_key: str, *, request_id: str | None = None) -> int | None:
        """Stop the turn under way and keep what it has; its number, or None when none runs. The
        same `request_id` again, within one run of the session's workflow, is the same interrupt.

        Raises:
            NotFound: when there is no such session.
        """
        await self._sight.session(session_key)
        return await self._shared.workflows.interrupt(session_key, request_id)

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
        mark: Mark | None = None,
    ) -> SessionList:
        """A page of the sessions asked for, last active first; what is None is not asked. With a
        mark, it begins after the session of that time and key."""
        asked = SessionFilter.of(
            kind=kind, since_minutes=since_minutes, state=state, agent=agent, label=label
        )
        return await self._looking.sessions(asked, limit, offset, mark)

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
        until: int | None = None,
    ) -> Found:
        """A page of the messages that match, best first. Messages above `gateway.level` are not
        found.

        Args:
            query: words, `"a phrase"`, OR, NOT or `-word`, `( )`, `word*`.
            session_key: only in this session.
            role: only of this speaker.
            limit: up to 200.
            offset: how many of the best to skip.
            until: only what was added up to this document of the index: the same on every page.

        Raises:
            InvalidArgument: for a query that asks nothing, or a number out of range.
            NotFound: when there is no such session.
        """
        return await self._looking.search(query, session_key, role, limit, offset, until)

    async def events(self, session_key: str, *, after: int = 0) -> AsyncIterator[Event]:
        """Every event of a session after a cursor, each once, for ever.

        Raises:
            NotFound: when there is no such session, or when it goes out of the caller's sight.
        """
        await self._sight.session(session_key)
        async with aclosing(self.store.outbox.follow(session_key, after)) as events:
            async for event in events:
                yield await self._sight.shown(event)

    async def shown(self, event: Event) -> Event:
        """An event of the outbox as the caller may be told it.

        Raises:
            NotFound: when its session goes out of the caller's sight with it.
        """
        return await self._sight.shown(event)

    async def reset(
        self, session_key: str, *, by: str = "user", request_id: str | None = None
    ) -> int:
        """Go on with an empty context; the transcript stays in the store. Returns the number of
        waiting messages that were discarded. The same `request_id` again is the same reset.

        Raises:
            NotFound: when there is no such session.
        """
        row = await self._sight.session(session_key)
        if request_id is not None:
            dropped = await self.store.sessions.dropped_by(session_key, request_id)
            if dropped is not None:
                return dropped
        by = self._sight.bounds.signed(by)
        decision = self._shared.guard.reset(session_key, row.agent, row.label, by)
        await self.store.record(self._shared.guard.recorded(decision, session_key))
        if not decision.goes_on:
            raise Denied(decision.reason, f"Decided by {decision.decided_by}.")
        request_id = str(ULID()) if request_id is None else request_id
        cursor = await self.store.outbox.newest_id()
        await self._shared.workflows.reset(SessionKey.parse(session_key), row.agent, request_id)
        done = await self._waiting.event(
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
        row = await self._sight.session(session_key)
        if row.state is SessionState.CLOSED:
            return
        cursor = await self.store.outbox.newest_id()
        await self._shared.workflows.close(SessionKey.parse(session_key), row.agent)
        await self._waiting.event(
            session_key, cursor, lambda event: event.kind is EventKind.SESSION_CLOSED
        )

    # Approvals -------------------------------------------------------------------------------

    async def approvals(
        self,
        *,
        session_key: str | None = None,
        state: ApprovalState | None = ApprovalState.PENDING,
        limit: int = 50,
        offset: int = 0,
        mark: Mark | None = None,
    ) -> ApprovalList:
        """A page of the calls that wait for a person, newest first; `state` None is all. With a
        mark, it begins after the approval of that time and id."""
        return await self._approving.list(session_key, state, limit, offset, mark)

    async def approval(self, approval_id: str) -> Approval:
        """One approval.

        Raises:
            NotFound: when there is none of that id.
        """
        return await self._approving.get(approval_id)

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
            by: who decides; a caller decides in their own name.
            reason: what the model reads, and the audit trail keeps.
            arguments: JSON of other arguments to run the call with, if it is approved.

        Raises:
            NotFound: when there is no such approval.
            Conflict: when it was decided before, or is over.
            InvalidArgument: when the arguments are no JSON object, or come with a denial.
        """
        return await self._approving.decide(approval_id, approve, by, reason, arguments)

    # Runs, contexts, memory ------------------------------------------------------------------

    @cached_property
    def runs(self) -> RunClient:
        """The runs of sub-agents."""
        return RunClient(self.settings, self.store, lambda: self.temporal, self._sight)

    @cached_property
    def context(self) -> ContextClient:
        """What models are given of sessions, and the summaries it is made of."""
        return ContextClient(self.settings, self.store, self._sight)

    @cached_property
    def schedules(self) -> ScheduleClient:
        """What is done again and again."""
        return ScheduleClient(self.settings, self.store, lambda: self.temporal, self._sight)

    @cached_property
    def memory(self) -> MemoryClient:
        """What agents remember, for people."""
        bounds = self._sight.bounds
        return MemoryClient(self.settings, self._shared.memory, bounds, lambda: self.temporal)

    @cached_property
    def keys(self) -> KeyClient:
        """The API keys of the installation."""
        return KeyClient(self.store, self._sight.bounds)
