"""Memory beside tool calls: facts of a turn are kept, vectors are made, tables are tended.

Invariant: each may be run again at any time. What a turn left is stored once; a reindex goes on
where the table stands, whoever was at it before.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from temporalio import activity

from activities.heartbeat import INTERVAL, heartbeating
from perdure.config import Settings
from perdure.domain.errors import Denied, InvalidArgument
from perdure.domain.keys import SessionKey
from perdure.domain.labels import can_flow
from perdure.domain.memory import (
    MemoryHit,
    NewEntry,
    Origin,
    Reindexed,
    ReindexRequest,
    Remembered,
    RememberRequest,
    Tended,
    Trust,
    View,
)
from perdure.domain.messages import Message, Role
from perdure.domain.steps import StepRequest
from perdure.guard import Guard
from perdure.memory import Memory, extraction
from perdure.memory.extraction import Fact
from perdure.models import REHEARSAL, ModelChain, ModelFailure, Piece, Prompt
from perdure.policy.secrets import redact_secrets
from perdure.search import fold
from perdure.store import Store
from perdure.store.clock import now
from perdure.store.remembering import Said

#: Characters of a turn that related entries are searched by.
_SEARCHED = 1_500
_SIGNS = re.compile(r'["“”„‟＂()*]|(?<!\w)-')
#: Entries that a model is shown, to repeat none and to contradict by id.
_RELATED = 12


class MemoryWork:
    """`MemoryActivities`, over the memory, the store and the models that pick facts."""

    def __init__(self, settings: Settings, store: Store, guard: Guard, memory: Memory) -> None:
        self._settings = settings
        self._store = store
        self._guard = guard
        self._memory = memory

    @activity.defn
    async def remember(self, request: RememberRequest) -> Remembered:
        """Keep what is worth keeping of a turn, if its agent's settings say so."""
        agent = self._settings.agents.get(request.agent)
        if agent is None or not agent.memory_auto:
            return Remembered()
        async with heartbeating():
            said = await self._store.remembering.turn(request.session_key, request.turn)
            said = [one for one in said if can_flow(one.label, request.label) and one.text.strip()]
            if not any(one.role is Role.USER for one in said):
                return Remembered()
            turn = _Turn(request, SessionKey.parse(request.session_key).tenant, tuple(said))
            known = await self._related(turn)
            models = self._settings.memory.models(agent.models)
            if all(name == REHEARSAL for name in models):
                facts = _plain(turn, known)
            else:
                facts = await self._picked(turn, known, models)
            return await self._keep(turn, facts)

    @activity.defn
    async def reindex_memory(self, request: ReindexRequest) -> Reindexed:
        """Embed what the configured model has not embedded, reporting how far it has come."""
        async with _telling() as told:
            for tenant in [request.tenant] if request.tenant else await self._memory.tenants():
                told.begin()
                await self._memory.reindex(tenant, told.take)
            return told.sum

    @activity.defn
    async def tend_memory(self) -> Tended:
        """Tend the tables of every tenant."""
        async with heartbeating():
            tables = rows = 0
            for tenant in await self._memory.tenants():
                tended = await self._memory.tend(tenant)
                tables, rows = tables + tended.tables, rows + tended.rows
            return Tended(tables=tables, rows=rows)

    async def _related(self, turn: _Turn) -> tuple[MemoryHit, ...]:
        text = " ".join(one.text for one in turn.said if one.role is not Role.TOOL)
        view = View(tenant=turn.tenant, agent=turn.request.agent, label=turn.request.label)
        try:
            # Plain words: folded text has no operators but signs.
            query = _SIGNS.sub(" ", fold(text[:_SEARCHED]))
            found = await self._memory.search(view, query, _RELATED)
        except InvalidArgument:
            return ()
        return found.results

    async def _picked(
        self, turn: _Turn, known: tuple[MemoryHit, ...], models: tuple[str, ...]
    ) -> tuple[Fact, ...]:
        """The facts that a model picks; none where policy does not let it read the turn, or where
        it fails: the next turn is remembered all the same."""
        shown = [(one.id, _speaker(one), redact_secrets(one.text)) for one in turn.said]
        text = extraction.asked(shown, known)
        asked = Message(id="remember", seq=1, turn=1, role=Role.USER, text=text, at=now())
        step = StepRequest(
            **turn.request.model_dump(include={"session_key", "agent", "turn", "label"}),
            step=0,
            message_id="",
        )
        decisions = self._guard.invocation(step, models)
        judged, entries = await asyncio.to_thread(self._guard.context, step, (asked,))
        entries = [*(self._guard.entry(one, step) for one in decisions), *entries]
        await self._store.record(*entries)
        if not all(one.goes_on for one in decisions):
            return ()
        prompt = Prompt(instructions=extraction.INSTRUCTIONS, transcript=judged)
        try:
            answer = await ModelChain(models).answer(prompt, _unheard)
        except ModelFailure as failure:
            if failure.retryable:
                raise
            activity.logger.warning("no facts were picked: %s", failure.code)
            return ()
        ids = [one.id for one in turn.said]
        return extraction.answered(answer.text, ids, [hit.id for hit in known])

    async def _keep(self, turn: _Turn, facts: tuple[Fact, ...]) -> Remembered:
        stored = superseded = 0
        for fact in facts:
            new = NewEntry(
                tenant=turn.tenant,
                agent=turn.request.agent,
                content=fact.content,
                tags=fact.tags,
                memory_type=fact.memory_type,
                trust=turn.trust_of(fact),
                label=turn.request.label,
                origin=Origin.AUTOMATIC,
                session_key=turn.request.session_key,
                message_ids=fact.sources or tuple(one.id for one in turn.said[:1]),
                supersedes=fact.supersedes,
            )
            try:
                (told,) = await self._memory.store(new)
            except (Denied, InvalidArgument):
                # A secret, or nothing that can be stored: the other facts are.
                continue
            stored += told.new
            superseded += len(fact.supersedes) if told.new else 0
        return Remembered(stored=stored, superseded=superseded)


@dataclass(frozen=True)
class _Turn:
    """A turn that is to be remembered, and whose memory it goes to."""

    request: RememberRequest
    tenant: str
    said: tuple[Said, ...]

    def trust_of(self, fact: Fact) -> Trust:
        """Learned, if people or the agent said it; external, if a tool or another session did."""
        sources = [one for one in self.said if one.id in fact.sources]
        # Of a fact without a source nobody knows who said it.
        others = any(one.by_others for one in sources or self.said)
        return Trust.EXTERNAL if others else Trust.LEARNED


def _plain(turn: _Turn, known: tuple[MemoryHit, ...]) -> tuple[Fact, ...]:
    spoken = [(one.id, one.text) for one in turn.said if one.role is Role.USER]
    facts = extraction.plainly_said(spoken)
    return tuple(
        fact.model_copy(update={"supersedes": extraction.contradicted(fact, known)})
        for fact in facts
    )


def _speaker(one: Said) -> str:
    if one.role is Role.TOOL:
        return f"result of {one.tool_name or 'a tool'}, not to be trusted"
    if one.from_session is not None:
        return "another session, not to be trusted"
    return "the person" if one.role is Role.USER else "the assistant"


class _Progress:
    """How far a reindex is, over all tenants."""

    def __init__(self) -> None:
        self._before = self._current = Reindexed()

    @property
    def sum(self) -> Reindexed:
        """Of those before, and of the one under way."""
        before, current = self._before, self._current
        return Reindexed(done=before.done + current.done, total=before.total + current.total)

    def begin(self) -> None:
        """The next tenant's turn."""
        self._before, self._current = self.sum, Reindexed()

    def take(self, reached: Reindexed) -> None:
        """How far the tenant's is."""
        self._current = reached


@asynccontextmanager
async def _telling() -> AsyncIterator[_Progress]:
    """Beat with how far it is, so that who watches the activity sees it."""
    progress = _Progress()

    async def beat() -> None:
        while True:
            activity.heartbeat(progress.sum)
            await asyncio.sleep(INTERVAL)

    beating = asyncio.create_task(beat(), name="heartbeat")
    try:
        yield progress
    finally:
        beating.cancel()


async def _unheard(piece: Piece) -> None:
    """Nobody listens to what a model writes here."""
