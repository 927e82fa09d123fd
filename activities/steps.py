"""The model step: append, assemble, call, commit.

Invariant: an answer is paid for once. The commit is keyed by (session, turn, step); a retry that
finds it returns it, and of two attempts that overlap the first to commit wins.
"""

from __future__ import annotations

import asyncio

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.budget import Allowance
from activities.compaction import Compaction
from activities.contexts import Assembled, Contexts
from activities.failures import another_attempt
from activities.heartbeat import absorb_stop, heartbeating
from activities.roster import Member, Roster
from activities.streaming import Stream
from perdure.audit import AuditEntry
from perdure.config import AgentSettings, Settings
from perdure.domain.endings import CUT, FILTERED
from perdure.domain.errors import Code, Denied, PerdureError, Refusal, TimedOut
from perdure.domain.messages import ToolCall
from perdure.domain.states import TurnState
from perdure.domain.steps import PlannedCall, StepOutcome, StepRequest, TurnEnd
from perdure.guard import Guard
from perdure.memory import Memory
from perdure.models import Answer, ModelChain, ModelFailure, Prompt
from perdure.store import Store
from perdure.store.claims import UNKNOWN_TOOL
from perdure.store.turns import Begun, StepAnswer
from perdure.tools.catalogue import Toolbox

#: The longest wait between two attempts when the provider names none, in seconds.
LONGEST_BACKOFF = 60.0
_NOTES = {"length": CUT, "content_filter": FILTERED}


class ModelSteps:
    """`StepActivities`, over the store, the settings and the models they name."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        roster: Roster,
        guard: Guard,
        compaction: Compaction,
        memory: Memory,
    ) -> None:
        self._settings = settings
        self._store = store
        self._roster = roster
        self._guard = guard
        self._allowance = Allowance(store, settings.limits.max_steps)
        self._contexts = Contexts(settings, store, compaction, memory)
        self._chains: dict[tuple[str, ...], ModelChain] = {}

    @activity.defn
    async def take_step(self, request: StepRequest) -> StepOutcome:
        """Take the turn's message, call the model once, commit its answer.

        A failure for good ends the turn, with its reason in the transcript.

        Raises:
            ApplicationError: for another attempt, after the provider's Retry-After.
        """
        attempt = 0
        async with heartbeating():
            try:
                member = await self._roster.of(request.session_key, request.agent, request.turn)
                asked = self._guard.invocation(request, member.agent.models)
                entries = [self._guard.entry(decision, request) for decision in asked]
                begun = await self._store.turns.begin_step(request, entries)
                if isinstance(begun, StepOutcome):
                    return begun
                attempt = begun.attempt
                refused = next((one for one in asked if not one.goes_on), None)
                if refused is not None:
                    raise Denied(refused.reason, f"Decided by {refused.decided_by}.")
                answer, entries = await self._judged(
                    request, await self._answer(request, begun, member)
                )
                outcome = await asyncio.shield(
                    self._store.turns.commit_step(request, answer, entries)
                )
                await self._allowance.settle(request, member)
                return outcome
            except PerdureError as error:
                # History would keep the causes of a failure, which hold a provider's raw words.
                activity.logger.warning("the step was refused", exc_info=error)
                error = await self._as_it_may_leave(request, error)
                again = await self._another_attempt(request, attempt, error)
                if again is not None:
                    raise again from None
                return await asyncio.shield(self._give_up(request, error))

    async def _answer(self, request: StepRequest, begun: Begun, member: Member) -> StepAnswer:
        allowed = self._settings.limits.step_attempts
        if begun.attempt > allowed:
            raise TimedOut(
                f"The step was begun {allowed} times and came to no end: each time it ran out of "
                "time, lost its worker or broke.",
                "Send the message again, or raise limits.step_timeout or limits.step_attempts.",
            )
        agent = member.agent
        refused = await self._allowance.steps_used_up(request, begun, member)
        if refused is not None:
            return refused
        releasable = self._guard.releasable(request)
        stream = Stream(self._store, request, begun.attempt, releasable)
        try:
            member = await self._roster.begins(request.session_key, request.agent, request.turn)
            offered = member.offered(request.aside)
            # A context that is too full is compacted here, which takes model calls too.
            context = await self._contexts.of(request, begun, agent, offered)
            prompt = await self._prompt(request, begun, member, context)
            refused = await self._allowance.reserve(request, member, prompt)
            if refused is not None:
                return refused
            async with stream.flowing():
                answer = await self._chain(agent).answer(prompt, stream.take)
        except asyncio.CancelledError:
            absorb_stop()
            return _interrupted(agent, stream.text)
        self._contexts.learn(agent.models, context, answer.usage)
        decided = _decided(answer, offered, self._settings.limits.tool_timeout)
        return decided.model_copy(update={"compact": context.compact})

    async def _judged(
        self, request: StepRequest, answer: StepAnswer
    ) -> tuple[StepAnswer, list[AuditEntry]]:
        """The answer as it may leave the session; what calls tools does not leave it yet."""
        if answer.ended is None:
            return answer, []
        judged = await asyncio.to_thread(self._guard.answer, request, answer.text)
        if judged.goes_on:
            # The provider's own form would bring back what was redacted.
            changes = {} if judged.text == answer.text else {"text": judged.text, "raw": None}
            return answer.model_copy(update=changes), list(judged.entries)
        refusal = Refusal(
            code=Code.DENIED,
            message=judged.reason,
            hint="Ask where such an answer may go, or have the level of that place raised.",
        )
        withheld = answer.model_copy(
            update={
                "text": judged.text,
                "raw": None,
                "error": refusal,
                "ended": TurnState.FAILED,
            }
        )
        return withheld, list(judged.entries)

    async def _prompt(
        self, request: StepRequest, begun: Begun, member: Member, context: Assembled
    ) -> Prompt:
        transcript, entries = self._guard.context(request, context.messages)
        if entries:
            await self._store.record(*entries)
        return Prompt(
            instructions=context.instructions,
            transcript=transcript,
            tools=context.offers,
            attempt=begun.attempt,
            parent=None if member.packet is None else member.packet.parent_key,
        )

    def _chain(self, agent: AgentSettings) -> ModelChain:
        if agent.models not in self._chains:
            self._chains[agent.models] = ModelChain(agent.models)
        return self._chains[agent.models]

    async def _as_it_may_leave(self, request: StepRequest, error: PerdureError) -> PerdureError:
        """A provider may quote what it was sent: its words are an output too."""
        if not isinstance(error, ModelFailure):
            return error
        judged = await asyncio.to_thread(self._guard.answer, request, error.message)
        if judged.goes_on and judged.text == error.message:
            return error
        await self._store.record(*judged.entries)
        return error.without_words()

    async def _another_attempt(
        self, request: StepRequest, attempt: int, error: PerdureError
    ) -> ApplicationError | None:
        if not isinstance(error, ModelFailure) or not error.retryable:
            return None
        if attempt >= self._settings.limits.step_attempts:
            return None
        delay = error.retry_after
        if delay is None:
            delay = min(2.0 ** (attempt - 1), LONGEST_BACKOFF)
        await self._store.turns.retrying(request, attempt, delay, error.message)
        return another_attempt(error, delay)

    async def _give_up(self, request: StepRequest, error: PerdureError) -> StepOutcome:
        end = TurnEnd(
            **request.model_dump(
                include={"session_key", "turn", "message_id", "label", "exchange", "aside"}
            ),
            state=TurnState.FAILED,
            reason=error.refusal,
        )
        await self._store.turns.end_turn(end)
        return StepOutcome(ended=TurnState.FAILED, error=error.code)


def _decided(answer: Answer, toolbox: Toolbox, tool_timeout: float) -> StepAnswer:
    note = _NOTES.get(answer.finish_reason)
    if note is None and not answer.text and not answer.tool_calls:
        note = "[The model gave an empty answer.]"
    return StepAnswer(
        text="\n\n".join(part for part in (answer.text, note) if part),
        tool_calls=answer.tool_calls,
        planned=tuple(
            _plan(position, call, toolbox, tool_timeout)
            for position, call in enumerate(answer.tool_calls)
        ),
        usage=answer.usage,
        model=answer.model,
        raw=answer.raw,
        ended=None if answer.tool_calls else TurnState.COMPLETED,
    )


def _plan(position: int, call: ToolCall, toolbox: Toolbox, tool_timeout: float) -> PlannedCall:
    spec = toolbox.specs.get(call.name)
    if spec is None:
        # The name is the model's text, which stays out of the history.
        return PlannedCall(call=position, tool=UNKNOWN_TOOL)
    timeout = spec.timeout or tool_timeout
    lane = spec.lane_of(call.arguments)
    return PlannedCall(call=position, tool=spec.name, lane=lane, timeout=timeout)


def _interrupted(agent: AgentSettings, partial: str) -> StepAnswer:
    return StepAnswer(
        text=f"{partial.rstrip()}\n\n[interrupted]".strip(),
        model=agent.models[0],
        ended=TurnState.INTERRUPTED,
        error=Refusal(
            code=Code.UNAVAILABLE,
            message="The turn was interrupted.",
            hint="The session goes on with the next message.",
        ),
    )
