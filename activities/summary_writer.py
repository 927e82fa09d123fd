"""Summaries, written: by a model, then more tersely, and in the end without one.

Invariant: there is always an answer, in bounded time and at bounded expense, and never from a
provider that may not read the source. A model that fails, is too slow, is forbidden or has become
too expensive is not asked again by the same writer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from activities.asking import Asker
from perdure.config.context import ContextSettings
from perdure.context.acceptance import Flaw, judged
from perdure.context.escaping import attribute
from perdure.context.fallback import fallback
from perdure.context.planning import Pass
from perdure.context.prompts import Effort, summary_prompt
from perdure.context.summaries import ContextParameters, Summary
from perdure.domain.errors import PerdureError
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen, Message, Role, Usage
from perdure.domain.steps import StepRequest
from perdure.guard import Guard
from perdure.models import Answer
from perdure.store import Store
from perdure.store.sweeps import SweepState

#: How an answer ends that is not all of what its model would have written.
_UNFINISHED = frozenset({"length", "content_filter", "error"})

_TOPIC = (
    "\n\nTell only what concerns the topic between the tags, which was named by an assistant: "
    "<topic>{topic}</topic>"
)

_logger = logging.getLogger(__name__)


class Caller(Frozen):
    """For whom summaries are written: a session, its agent and live label, and its turn."""

    session_key: str
    agent: str
    turn: int
    label: Label


class Text(Frozen):
    """What was written of a source: nothing, where nothing smaller than it could be.

    `model` is who wrote it, None without one; `usage` what all tries took.
    """

    text: str | None = None
    tokens: int = 0
    model: str | None = None
    usage: Usage = Usage()


class SummaryWriter:
    """Writes the summaries of one sweep, or of one tool call."""

    def __init__(
        self,
        store: Store,
        guard: Guard,
        settings: ContextSettings,
        caller: Caller,
        models: tuple[str, ...],
        spent: SweepState,
    ) -> None:
        self._store = store
        self._guard = guard
        self._asker = Asker(store, guard)
        self._settings = settings
        self._caller = caller
        self._models = models
        self._day_tokens = spent.day_tokens
        self._day_cost = spent.day_cost
        #: Why no model is asked any more; empty while one is.
        self.gave_up = ""

    async def write(
        self,
        made: Pass,
        source: Sequence[Message] | Sequence[Summary],
        parameters: ContextParameters,
        *,
        seconds: float,
        about: str = "",
    ) -> Text:
        """What is to stand for `source`, the sources of `made` in order.

        Args:
            made: what is to be made of them.
            source: messages for a leaf, else summaries.
            parameters: fitted to the budget of the context.
            seconds: what is left for this one; a single model call is bounded by the settings too.
            about: a topic to which a model is to keep, if there is one.
        """
        usage = Usage()
        deadline = asyncio.get_running_loop().time() + seconds
        readable = source
        if self._may_ask():
            readable = await self._readable(source)
        for effort in Effort:
            if not self._may_ask():
                break
            prompt = await asyncio.to_thread(
                summary_prompt, made, readable, effort, most_tokens=parameters.leaf_chunk_tokens
            )
            topic = _TOPIC.format(topic=attribute(about, 400)) if about else ""
            answer = await self._ask(prompt.instructions + topic, prompt.text, deadline)
            if answer is None:
                break
            usage += answer.usage
            verdict = judged(answer.text, made)
            if not isinstance(verdict, Flaw) and answer.finish_reason not in _UNFINISHED:
                return Text(
                    text=verdict.text, tokens=verdict.tokens, model=answer.model, usage=usage
                )
            flaw = verdict if isinstance(verdict, Flaw) else answer.finish_reason
            _logger.info("a summary that %s wrote was not taken: %s", answer.model, flaw)
        written = await asyncio.to_thread(fallback, made, source, parameters.fallback_tokens)
        if written is None:
            return Text(usage=usage)
        return Text(text=written.text, tokens=written.tokens, usage=usage)

    async def _ask(self, instructions: str, question: str, deadline: float) -> Answer | None:
        """The answer to one call, or None: then no further call is made."""
        left = deadline - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(min(self._settings.call_seconds, left)):
                answer = await self._asker.ask(
                    **self._caller.model_dump(),
                    models=self._models,
                    question=question,
                    instructions=instructions,
                )
        except TimeoutError:
            self._give_up("it was too slow")
            return None
        except PerdureError as error:
            # The code says what it was; a provider's words may quote the conversation.
            self._give_up(f"{error.code}")
            return None
        self._day_tokens += answer.usage.input_tokens + answer.usage.output_tokens
        self._day_cost += answer.usage.cost or 0.0
        return answer

    def _may_ask(self) -> bool:
        limit = self._settings.daily_cost
        if self._day_tokens >= self._settings.daily_tokens:
            self._give_up("context.daily_tokens is spent")
        elif limit is not None and self._day_cost >= limit:
            self._give_up("context.daily_cost is spent")
        return not self.gave_up

    def _give_up(self, why: str) -> None:
        if not self.gave_up:
            self.gave_up = why
            told = ", ".join(self._models)
            _logger.warning("summaries are made without %s: %s", told, why)

    async def _readable(
        self, source: Sequence[Message] | Sequence[Summary]
    ) -> Sequence[Message] | Sequence[Summary]:
        """The source as rules let a model read it. What is made without one stays in the store,
        and is judged when it enters a context."""
        caller = self._caller
        request = StepRequest(
            session_key=caller.session_key,
            agent=caller.agent,
            turn=caller.turn,
            step=0,
            message_id="",
            label=caller.label,
        )
        messages = tuple(one if isinstance(one, Message) else _as_message(one) for one in source)
        judged_messages, entries = await asyncio.to_thread(self._guard.context, request, messages)
        if not entries:
            return source
        await self._store.record(*entries)
        summaries = [one for one in source if isinstance(one, Summary)]
        if not summaries:
            return judged_messages
        pairs = zip(summaries, judged_messages, strict=True)
        return [summary.model_copy(update={"text": read.text}) for summary, read in pairs]


def _as_message(summary: Summary) -> Message:
    return Message(
        id=summary.id,
        seq=summary.first_seq,
        turn=summary.from_turn,
        role=Role.USER,
        text=summary.text,
        label=summary.label,
        at=summary.latest_at,
    )
