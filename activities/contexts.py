"""The context of one model step: what the window has room for, and whether it fills.

Invariant: what is left out of a context is left out for lack of room, and that room is measured
as the model measures it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from activities.compaction import Compaction
from perdure.config import AgentSettings, Settings
from perdure.context import (
    Calibration,
    View,
    assemble_view,
    estimate_tokens,
    history_budget,
)
from perdure.domain.compaction import CompactionDue, CompactRequest
from perdure.domain.keys import SessionKey
from perdure.domain.memory import View as MemoryView
from perdure.domain.messages import Message, Usage
from perdure.domain.steps import StepRequest
from perdure.memory import Memory
from perdure.models import ToolOffer
from perdure.store import Store
from perdure.store.turns import Begun
from perdure.tools import ToolSpec
from perdure.tools.catalogue import Toolbox
from perdure.tools.memory import GROUP as MEMORY


@dataclass(frozen=True, slots=True)
class Assembled:
    """What a model is given: instructions, messages, tools, their estimated tokens; and the sweep
    that the history asks for, if it is past its threshold."""

    instructions: str
    messages: tuple[Message, ...]
    offers: tuple[ToolOffer, ...]
    tokens: int
    compact: CompactionDue | None


class Contexts:
    """Assembles contexts, and learns how each model counts."""

    def __init__(
        self, settings: Settings, store: Store, compaction: Compaction, memory: Memory
    ) -> None:
        self._settings = settings
        self._store = store
        self._compaction = compaction
        self._memory = memory
        self._calibrations: dict[tuple[str, ...], Calibration] = {}

    async def of(
        self, request: StepRequest, begun: Begun, agent: AgentSettings, toolbox: Toolbox
    ) -> Assembled:
        """The context of a step of `agent`, which is offered `toolbox`."""
        offered = [_offer(spec) for spec in toolbox.specs.values()]
        instructions = agent.instructions + await self._pinned(request, toolbox)
        fixed = estimate_tokens(instructions) + sum(tokens for _, tokens in offered)
        calibration = self._calibrations.get(agent.models, Calibration())
        budget = calibration.affordable(
            history_budget(agent.context_window, calibration.calibrated(fixed))
        )
        view, due = await self._view(request, begun, budget)
        if due is not None and due.urgent:
            # It would be answered without a part of what was said.
            await self._compaction.sweep(
                CompactRequest(
                    session_key=request.session_key,
                    agent=request.agent,
                    turn=request.turn,
                    label=request.label,
                    budget=budget,
                    urgent=True,
                )
            )
            view, due = await self._view(request, begun, budget)
        context = assemble_view(view, budget, fresh_tail=self._settings.context.fresh_tail)
        return Assembled(
            instructions=instructions,
            messages=context.messages,
            offers=tuple(offer for offer, _ in offered),
            tokens=fixed + context.tokens,
            compact=due,
        )

    async def _pinned(self, request: StepRequest, toolbox: Toolbox) -> str:
        """The pinned entries of an agent that has a memory, as they stand in its instructions."""
        if not any(spec.group == MEMORY for spec in toolbox.specs.values()):
            return ""
        view = MemoryView(
            tenant=SessionKey.parse(request.session_key).tenant,
            agent=request.agent,
            label=request.label,
        )
        pinned = await self._memory.pinned(view, self._settings.memory.pinned_tokens)
        return f"\n\n{pinned.text}" if pinned.text else ""

    async def _view(
        self, request: StepRequest, begun: Begun, budget: int
    ) -> tuple[View, CompactionDue | None]:
        """What the turn may see, and the sweep that would make it smaller if it is too large."""
        view = await self._store.tails.view(
            request.session_key,
            begun,
            budget=budget,
            turn=request.turn,
            exchange=request.exchange if request.aside else None,
        )
        full = view.cut or view.tokens > self._settings.context.threshold * budget
        if not full or request.aside:
            return view, None
        return view, await self._compaction.due(request.session_key, request.agent, budget)

    def learn(self, models: tuple[str, ...], context: Assembled, usage: Usage) -> None:
        """Take in what a provider counted for a context."""
        known = self._calibrations.get(models, Calibration())
        self._calibrations[models] = known.learned(context.tokens, usage.input_tokens)


# A tool is the same in every step, and a schema costs 0.1 ms.
@lru_cache(maxsize=1_000)
def _offer(spec: ToolSpec) -> tuple[ToolOffer, int]:
    """A tool as models are offered it, and its tokens, estimated."""
    offer = ToolOffer(name=spec.name, description=spec.description, parameters=spec.schema())
    return offer, estimate_tokens(f"{offer}")
