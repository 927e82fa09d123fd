"""A turn as OpenAI's protocols tell it.

Invariant: the text of an answer is the turn's text as the caller may read it, and its usage is that
of all model calls of the turn.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from gateway.http.openai.refusals import TurnFailed
from perdure.domain.endings import CUT, FILTERED, WITHHELD
from perdure.domain.errors import Code
from perdure.domain.messages import Frozen
from perdure.domain.states import TurnState
from perdure.store.transcript import TurnResult


class Finish(StrEnum):
    """Why an answer ends."""

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"


class _Failed(TurnFailed):
    """A failed turn, with the code that its status follows from."""

    def __init__(self, code: Code, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.code = code


#: What of the reasons of a failed turn is told as it is; the rest is a fault behind the gateway.
_TOLD = frozenset({Code.RATE_LIMITED, Code.LIMIT_EXCEEDED, Code.DENIED, Code.TIMEOUT})


def finish_of(result: TurnResult) -> Finish:
    """Why a turn's answer ends.

    Raises:
        TurnFailed: when the turn came to no answer.
    """
    if result.text == WITHHELD:
        return Finish.CONTENT_FILTER
    if result.state is TurnState.COMPLETED:
        if result.text.endswith(CUT):
            return Finish.LENGTH
        return Finish.CONTENT_FILTER if result.text.endswith(FILTERED) else Finish.STOP
    told = result.error or {}
    code = Code(told.get("code", Code.UNAVAILABLE))
    message = told.get("message") or f"The turn ended as {result.state}."
    raise _Failed(code if code in _TOLD else Code.UNAVAILABLE, message, told.get("hint", ""))


class CompletionUsage(Frozen):
    """The tokens of all model calls of a turn."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int

    @classmethod
    def of(cls, result: TurnResult) -> CompletionUsage:
        """Those of a turn."""
        used = result.usage
        return cls(
            prompt_tokens=used.input_tokens,
            completion_tokens=used.output_tokens,
            total_tokens=used.input_tokens + used.output_tokens,
        )


class CompletionMessage(Frozen):
    """An answer."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class CompletionChoice(Frozen):
    """The one answer of a completion."""

    index: int = 0
    message: CompletionMessage
    logprobs: None = None
    finish_reason: Finish


class Completion(Frozen):
    """A chat completion: one turn of an agent."""

    id: str = Field(examples=["chatcmpl-msg_01KB7ZJ3T9"])
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: tuple[CompletionChoice, ...]
    usage: CompletionUsage

    @classmethod
    def of(cls, result: TurnResult, model: str, created: int) -> Completion:
        """The completion that a turn is.

        Raises:
            TurnFailed: when the turn came to no answer.
        """
        choice = CompletionChoice(
            message=CompletionMessage(content=result.text), finish_reason=finish_of(result)
        )
        return cls(
            id=completion_id(result.message_id),
            created=created,
            model=model,
            choices=(choice,),
            usage=CompletionUsage.of(result),
        )


class ChunkDelta(Frozen):
    """What a chunk adds to the answer."""

    role: Literal["assistant"] | None = None
    content: str | None = None


class ChunkChoice(Frozen):
    """What a chunk adds to the one answer, or why it ends."""

    index: int = 0
    delta: ChunkDelta = ChunkDelta()
    logprobs: None = None
    finish_reason: Finish | None = None


class Chunk(Frozen):
    """A piece of a streamed chat completion."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: tuple[ChunkChoice, ...] = ()
    usage: CompletionUsage | None = None


def completion_id(message_id: str) -> str:
    """The id of the completion that answers a message."""
    return f"chatcmpl-{message_id}"
