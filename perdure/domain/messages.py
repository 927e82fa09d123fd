"""Messages of a transcript, as every room sees them: facts, in the store's order.

Invariant: provider formats end at `perdure.models`; here a message is text, tool calls and
where it came from. `raw` is the provider's own form of an answer, kept so that nothing a
provider needs back (thinking signatures, cached parts) is lost; only `perdure.models` reads it.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from perdure.domain.labels import Label


class Frozen(BaseModel):
    """A fact: closed and immutable."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Role(StrEnum):
    """Who speaks."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class ToolCall(Frozen):
    """A tool call as the model made it. `arguments` is JSON text, valid or not."""

    id: str
    name: str
    arguments: str = "{}"


class Message(Frozen):
    """One message of a transcript. `seq` orders it in its session, from 1, without reuse."""

    id: str
    seq: int
    turn: int
    step: int = 0
    role: Role
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    from_session: str | None = None
    label: Label = Label.PUBLIC
    #: What the message takes of a context, estimated.
    tokens: int = 0
    at: datetime
    raw: str | None = None
    #: The exchange with another session that the message belongs to.
    exchange: str | None = None
    #: Whether it was said on the side thread of that exchange, beside the context.
    aside: bool = False


class Usage(Frozen):
    """What model calls used: tokens, and US dollars where the price is known.

    `cost` is None when no price is known; a sum is None only if every part is.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None

    def __add__(self, other: Usage) -> Usage:
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=sum(costs) if costs else None,
        )
