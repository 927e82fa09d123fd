"""What is asked of a model and what comes back: the shapes every model speaks here.

Invariant: nothing of a provider's format is visible in these types. The one exception, the
text `Answer.raw`, is opaque to everyone but `perdure.models.conversion`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from perdure.domain.messages import Message, ToolCall, Usage

#: How long a provider may say nothing at all before the call is given up, in seconds. Reasoning
#: models and local ones that read a long prompt are silent for minutes; a dead connection is
#: silent for ever. What bounds the whole call is the caller's business.
SILENCE = 300.0


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """A tool the model may call; `parameters` is the JSON schema of its arguments, an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One model call.

    `transcript` is assembled and paired: oldest first, every tool message after the assistant
    message that made its call. `attempt` counts the durable attempts of this step, from 1.
    `silence` is how many seconds the provider may send nothing. `parent` is the session that this
    one works for, whose messages are told apart from those of others.
    """

    instructions: str
    transcript: Sequence[Message]
    tools: Sequence[ToolOffer] = ()
    attempt: int = 1
    silence: float = SILENCE
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished model answer.

    `model` is the configured name that answered. `raw` is the provider's form of the answer, to be
    kept with the message and given back in later prompts; None where there is nothing to keep.
    `finish_reason` is `stop`, `tool_call`, `length` (cut at the token limit), `content_filter`
    (the provider refused or filtered), `error`, or the provider's own word.
    """

    text: str
    tool_calls: tuple[ToolCall, ...]
    usage: Usage
    model: str
    raw: str | None
    finish_reason: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of streamed text. With `restart`, all text before it is void: its model failed."""

    text: str
    restart: bool = False


OnText = Callable[[Piece], Awaitable[None]]


class Model(Protocol):
    """Anything that answers a prompt."""

    async def answer(self, prompt: Prompt, on_text: OnText) -> Answer:
        """Answer `prompt`, passing text to `on_text` as it comes.

        Raises:
            ModelFailure: when there is no answer; the pieces that came are void then.
        """
        ...

    async def close(self) -> None:
        """Release connections. The model is not used afterwards."""
        ...
