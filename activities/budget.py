"""What a step of a run may take: its steps, its tokens, its money; asked before it is made.

Invariant: no model is called for a run that has nothing left. A run has its steps in all; once it
has ended, its session has as many in each turn, and still no more tokens and money.
"""

from __future__ import annotations

import asyncio

from activities.roster import Member
from perdure.context import estimate_tokens
from perdure.domain.errors import Code, Refusal
from perdure.domain.runs import EndReason, RunState
from perdure.domain.states import TurnState
from perdure.domain.steps import StepRequest
from perdure.models import Prompt
from perdure.models.prices import price
from perdure.store import Store
from perdure.store.budgets import Left, Need
from perdure.store.turns import Begun, StepAnswer

#: What is reserved for an answer, in tokens. Longer ones are counted when they are there.
ANSWER_TOKENS = 1_000


class Allowance:
    """Grants steps."""

    def __init__(self, store: Store, max_steps: int) -> None:
        self._store = store
        #: For agents that name no limit of their own.
        self._max_steps = max_steps

    async def steps_used_up(
        self, request: StepRequest, begun: Begun, member: Member
    ) -> StepAnswer | None:
        """How a turn ends that has no step left."""
        agent = member.agent
        most = agent.max_steps or self._max_steps
        taken = request.step - 1
        if member.packet is not None and begun.step_count >= most:
            run = await self._store.runs.of_session(request.session_key)
            if run is not None and run.state is not RunState.ENDED:
                taken = begun.step_count
        if taken < most:
            return None
        what = "turn" if taken == request.step - 1 else "run"
        return _ended(
            agent.models[0],
            EndReason.STEP_LIMIT,
            f"The {what} reached its limit of {most} steps.",
            "Send a message to go on, or raise max_steps.",
        )

    async def reserve(
        self, request: StepRequest, member: Member, prompt: Prompt
    ) -> StepAnswer | None:
        """Reserve what a step may take; or how a turn ends whose step does not fit."""
        if not member.bounded:
            return None
        models = member.agent.models
        need = await asyncio.to_thread(_need_of, prompt, models)
        left = await self._store.budgets.reserve(request.session_key, need)
        if left.holds(need):
            return None
        return _ended(
            models[0],
            EndReason.BUDGET,
            f"The next step may take {_told(need, left)}: limits.run_tokens and limits.run_cost "
            "are for a run and all below it.",
            "What was found so far stands. Spawn a smaller task, or raise the limits.",
        )

    async def settle(self, request: StepRequest, member: Member) -> None:
        """Let go what was reserved for a step: what it took is counted."""
        if member.bounded:
            await self._store.budgets.release(request.session_key)


def estimate(*texts: str, models: tuple[str, ...]) -> Need:
    """What a call with these texts may take. Loads the table of prices: call it in a thread."""
    return _need(sum(map(estimate_tokens, texts)), models)


def _need_of(prompt: Prompt, models: tuple[str, ...]) -> Need:
    tokens = estimate_tokens(prompt.instructions)
    tokens += sum(message.tokens for message in prompt.transcript)
    tokens += sum(estimate_tokens(f"{offer}") for offer in prompt.tools)
    return _need(tokens, models)


def _need(tokens: int, models: tuple[str, ...]) -> Need:
    return Need(tokens=tokens + ANSWER_TOKENS, cost=price(models, tokens, ANSWER_TOKENS))


def _told(need: Need, left: Left) -> str:
    told = []
    if left.tokens is not None:
        told.append(f"about {need.tokens} tokens ({max(left.tokens, 0)} are left)")
    if left.cost is not None:
        cost = "an unknown price" if need.cost is None else f"about ${need.cost:.4f}"
        told.append(f"{cost} (${max(left.cost, 0.0):.4f} are left)")
    return " and ".join(told)


def _ended(model: str, reached: EndReason, message: str, hint: str) -> StepAnswer:
    words = reached.replace("_", " ")
    return StepAnswer(
        text=f"[{words}] {message} {hint}",
        model=model,
        ended=TurnState.FAILED,
        error=Refusal(code=Code.LIMIT_EXCEEDED, message=message, hint=hint),
        reached=reached,
    )
