"""Compaction: sweeps that bring a session's context under its threshold, summary by summary.

Invariant: a sweep may die, be stopped or be repeated at any point and leaves a whole DAG: texts
are written outside any transaction, each summary is published in one. Bounded in passes and time;
what nothing can be gained from is remembered and not tried again.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from dataclasses import dataclass

from temporalio import activity

from activities.heartbeat import absorb_stop, heartbeating
from activities.roster import Roster
from activities.summary_writer import Caller, SummaryWriter
from perdure.config import Settings
from perdure.context import ContextParameters, Summary, estimate_tokens, history_budget
from perdure.context.planning import Pass, Rest, plan
from perdure.domain.compaction import CompactionDue, CompactOutcome, CompactRequest, SweepEnd
from perdure.domain.labels import join
from perdure.domain.messages import Message
from perdure.guard import Guard
from perdure.store import Store
from perdure.store.outlines import Outline
from perdure.store.summaries import Draft, Place
from perdure.telemetry import metrics

#: Beyond so many budgets the newest raw messages are not looked at before the oldest are
#: summarised: there may be half a million from before summaries were made.
_BUDGETS = 2
_RESTS = {Rest.FITS: SweepEnd.BELOW, Rest.EXHAUSTED: SweepEnd.EXHAUSTED}


@dataclass
class _Sweep:
    """One sweep under way: who writes, what was tried in vain, what came of it so far."""

    request: CompactRequest
    parameters: ContextParameters
    writer: SummaryWriter
    tried: str
    deadline: float
    in_vain: set[str]
    tokens_before: int
    published: int = 0
    fallbacks: int = 0

    @property
    def seconds_left(self) -> float:
        """Until the sweep must end."""
        return self.deadline - asyncio.get_running_loop().time()


class Compaction:
    """`CompactionActivities`, over the store and the models that summarise."""

    def __init__(self, settings: Settings, store: Store, roster: Roster, guard: Guard) -> None:
        self._settings = settings
        self._store = store
        self._roster = roster
        self._guard = guard

    @activity.defn
    async def compact(self, request: CompactRequest) -> CompactOutcome:
        """Make summaries until the context is under its threshold, nothing more can be gained, or
        the sweep has reached its bounds."""
        async with heartbeating():
            try:
                return await self.sweep(request)
            except asyncio.CancelledError:
                absorb_stop()
                return CompactOutcome(ended=SweepEnd.STOPPED)

    async def due(self, session_key: str, agent: str, budget: int) -> CompactionDue | None:
        """What a sweep is to be asked for, if it could make the context smaller; `budget` is what
        the history may take. Reads the outline of the whole context: ask when it has grown."""
        outline = await self._outline(session_key, budget)
        if outline is None:
            return None
        in_vain = _in_vain(outline, await self._tried_by(session_key, agent))
        idle = isinstance(await self._plan(session_key, budget, outline, in_vain), Rest)
        # Or it may be made already, and seen from the next turn on only.
        if idle and outline.seen_tokens <= max(outline.tokens, budget):
            return None
        return CompactionDue(budget=budget, urgent=outline.seen_tokens > budget)

    async def sweep(self, request: CompactRequest) -> CompactOutcome:
        """What `compact` does, inside another activity that must not go on without it."""
        key, bounds = request.session_key, self._settings.context
        budget = request.budget or await self._budget(key, request.agent)
        outline = await self._outline(key, budget)
        if outline is None:
            return CompactOutcome(ended=SweepEnd.BELOW)
        if request.urgent and request.turn >= outline.turn:
            await self._store.summaries.adopt(key, outline.epoch, request.turn)
        sweep = await self._begun(request, budget, outline)
        for number in itertools.count():
            made = await self._plan(key, budget, outline, sweep.in_vain)
            if isinstance(made, Rest):
                ended = _RESTS[made]
                break
            if number == bounds.sweep_passes:
                ended = SweepEnd.PASSES
                break
            # A call that the sweep's end would cut off is not begun.
            if sweep.seconds_left < min(bounds.call_seconds, bounds.sweep_seconds / 2):
                ended = SweepEnd.TIME
                break
            await self._pass(sweep, outline, made)
            outline = await self._outline(key, budget) or outline
        await self._store.sweeps.end(key, ended)
        metrics.COMPACTIONS.labels(ended).inc()
        metrics.SUMMARIES.labels("model").inc(sweep.published - sweep.fallbacks)
        metrics.SUMMARIES.labels("fallback").inc(sweep.fallbacks)
        return CompactOutcome(
            ended=ended,
            published=sweep.published,
            fallbacks=sweep.fallbacks,
            tokens_before=sweep.tokens_before,
            tokens_after=outline.tokens,
        )

    async def _begun(self, request: CompactRequest, budget: int, outline: Outline) -> _Sweep:
        settings = self._settings.context
        tried = await self._tried_by(request.session_key, request.agent)
        caller = Caller(
            session_key=request.session_key,
            agent=request.agent,
            turn=request.turn,
            label=join(request.label, outline.label),
        )
        return _Sweep(
            request=request,
            parameters=settings.fitted(budget),
            writer=SummaryWriter(
                self._store,
                self._guard,
                settings,
                caller,
                await self._models(request.session_key, request.agent),
                outline.sweeps,
            ),
            tried=tried,
            deadline=asyncio.get_running_loop().time() + settings.sweep_seconds,
            in_vain=_in_vain(outline, tried),
            tokens_before=outline.tokens,
        )

    async def _pass(self, sweep: _Sweep, outline: Outline, made: Pass) -> None:
        """Write one summary and publish it, or remember that nothing smaller can be written."""
        request = sweep.request
        source = await self._source(request.session_key, outline.epoch, made)
        text = await sweep.writer.write(made, source, sweep.parameters, seconds=sweep.seconds_left)
        if text.text is None:
            sweep.in_vain.add(made.id)
            await self._store.sweeps.exhaust(request.session_key, made.id, sweep.tried, text.usage)
            return
        draft = Draft(
            **made.model_dump(include={"depth", "sources", "first_seq", "last_seq"}),
            **text.model_dump(include={"text", "tokens", "model"}),
            usage=text.usage,
            fallback=text.model is None,
        )
        place = await self._store.summaries.publish(
            request.session_key,
            outline.epoch,
            draft,
            in_turn=request.turn if request.urgent else None,
        )
        if place is Place.NEW:
            sweep.published += 1
            sweep.fallbacks += draft.fallback
        elif place is Place.KNOWN:
            # It is there and was planned all the same: the DAG is damaged, and this no way out.
            sweep.in_vain.add(made.id)

    async def _source(self, key: str, epoch: int, made: Pass) -> list[Message] | list[Summary]:
        if made.depth > 0:
            return await self._store.nodes.named(key, made.sources)
        pages = self._store.nodes.messages(key, epoch, made.first_seq, made.last_seq)
        return [message async for page in pages for message in page]

    async def _outline(self, session_key: str, budget: int) -> Outline | None:
        bounds = self._settings.context
        most = _BUDGETS * budget + bounds.sweep_passes * bounds.leaf_chunk_tokens
        return await self._store.outlines.of(session_key, most)

    async def _plan(
        self, session_key: str, budget: int, outline: Outline, in_vain: set[str]
    ) -> Pass | Rest:
        return await asyncio.to_thread(
            plan,
            outline.items,
            budget,
            self._settings.context,
            session_key=session_key,
            epoch=outline.epoch,
            exhausted=in_vain,
        )

    async def _budget(self, session_key: str, agent: str) -> int:
        """What the history may take beside the agent's instructions and tools."""
        member = await self._roster.of(session_key, agent)
        told = [f"{spec.description}{spec.schema()}" for spec in member.toolbox.specs.values()]
        reserved = sum(map(estimate_tokens, [member.agent.instructions, *told]))
        return history_budget(member.agent.context_window, reserved)

    async def _models(self, session_key: str, agent: str) -> tuple[str, ...]:
        member = await self._roster.of(session_key, agent)
        return self._settings.context.models(member.agent.models)

    async def _tried_by(self, session_key: str, agent: str) -> str:
        """The name of what a sweep would try now: other models, or other lengths, may gain
        something where these have gained nothing."""
        settings = self._settings.context
        told = [*await self._models(session_key, agent), settings.model_dump_json()]
        return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]


def _in_vain(outline: Outline, tried: str) -> set[str]:
    return {chunk for chunk, by in outline.sweeps.exhausted.items() if by == tried}
