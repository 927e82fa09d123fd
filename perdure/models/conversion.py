"""Between our transcript and pydantic-ai's messages, both ways.

Invariant: what the transcript says is what a provider is told. An answer's `raw` form is used only
while it says the same as its message (a policy may have redacted the message since); otherwise the
message is rebuilt from its text and calls. Every tool call has an id of its own in the request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import pydantic_core
from pydantic import TypeAdapter
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from perdure.domain.messages import Message, Role, ToolCall, Usage
from perdure.models.prompt import Answer, ToolOffer
from perdure.models.provenance import as_told

# Built once: an adapter costs 30 ms.
_RESPONSE: TypeAdapter[ModelResponse] = TypeAdapter(ModelResponse)

#: Providers refuse an empty text block; a tool may well have nothing to say.
_EMPTY_RESULT = "(empty)"

Made = TypeVar("Made")


def to_history(transcript: Sequence[Message], parent: str | None = None) -> list[ModelMessage]:
    """The transcript as pydantic-ai messages, ready for any provider; `parent` is the session that
    this one works for.

    Neighbouring tool and user messages become one request, results first, as providers want it.
    Assistant messages without text and calls are left out.
    """
    history: list[ModelMessage] = []
    results: list[ToolReturnPart] = []
    prompts: list[UserPromptPart] = []
    ids = _CallIds()

    def close_request() -> None:
        if results or prompts:
            history.append(ModelRequest(parts=[*results, *prompts]))
            results.clear()
            prompts.clear()

    for message in transcript:
        if message.role is Role.USER:
            prompts.append(UserPromptPart(as_told(message, parent), timestamp=message.at))
        elif message.role is Role.TOOL:
            results.append(
                ToolReturnPart(
                    tool_name=message.tool_name or "unknown",
                    content=message.text or _EMPTY_RESULT,
                    tool_call_id=ids.of_result(message.tool_call_id or ""),
                    timestamp=message.at,
                )
            )
        elif message.text or message.tool_calls:
            close_request()
            history.append(_to_response(message, ids))
    close_request()
    return history


def to_parameters(tools: Iterable[ToolOffer]) -> ModelRequestParameters:
    """The offered tools as pydantic-ai takes them."""
    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=dict(tool.parameters),
            )
            for tool in tools
        ]
    )


def to_answer(model: str, response: ModelResponse) -> Answer:
    """A provider's finished response as our answer, under the configured name `model`.

    A refusal that came instead of text is the text; `finish_reason` tells the two apart.
    """
    response = replace(response, parts=[_repaired(part) for part in response.parts])
    details = response.provider_details or {}
    refusal = details.get("refusal")
    if isinstance(refusal, str) and not response.text:
        response = replace(response, parts=[*response.parts, TextPart(without_surrogates(refusal))])
    return Answer(
        text=response.text or "",
        tool_calls=_calls(response),
        usage=_usage(response),
        model=model,
        raw=_RESPONSE.dump_json(response, exclude_none=True).decode(),
        finish_reason=str(response.finish_reason or details.get("finish_reason") or "stop"),
    )


def without_surrogates(text: str) -> str:
    """`text` that can be stored: surrogate pairs become characters, lone halves U+FFFD.

    Some servers cut an emoji into its two halves and send them as two pieces.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class _CallIds:
    """Gives each tool call of a request an id of its own, and its result the same one.

    Some servers number calls anew in every answer, or give none; others refuse a request in which
    an id comes twice. An id is kept where it can be. A new one depends on the message's place in
    its session alone, so the same history gives the same bytes, which prompt caches live on.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._open: dict[str, deque[str]] = {}

    def start_message(self) -> None:
        self._open = {}

    def of_call(self, own: str, seq: int, index: int) -> str:
        new = own
        if not own or own in self._taken:
            new = f"call_{seq}_{index}"
            while new in self._taken:
                new += "_"
        self._taken.add(new)
        self._open.setdefault(own, deque()).append(new)
        return new

    def of_result(self, own: str) -> str:
        waiting = self._open.get(own)
        return waiting.popleft() if waiting else own


def _to_result(message: Message, ids: _CallIds) -> ToolReturnPart:
    result = _result(message)
    call_id = ids.of_result(result.tool_call_id)
    return result if call_id == result.tool_call_id else replace(result, tool_call_id=call_id)


def _to_response(message: Message, ids: _CallIds) -> ModelResponse:
    response = _response(message)
    ids.start_message()
    new = [
        ids.of_call(call.id, message.seq, index) for index, call in enumerate(message.tool_calls)
    ]
    if all(call.id == call_id for call, call_id in zip(message.tool_calls, new, strict=True)):
        return response
    # Its calls are the message's, in order.
    left = iter(new)
    parts = [
        replace(part, tool_call_id=next(left)) if isinstance(part, ToolCallPart) else part
        for part in response.parts
    ]
    return replace(response, parts=parts)


def _once(make: Callable[[Message], Made]) -> Callable[[Message], Made]:
    """`make`, done once for each message as long as that is in use: every step sends all of its
    context again. Nobody changes what was made, pydantic-ai neither."""
    made: WeakKeyDictionary[Message, Made] = WeakKeyDictionary()

    def of(message: Message) -> Made:
        known = made.get(message)
        if known is None:
            known = made[message] = make(message)
        return known

    return of


@_once
def _prompt(message: Message) -> UserPromptPart:
    return UserPromptPart(message.text, timestamp=message.at)


@_once
def _result(message: Message) -> ToolReturnPart:
    return ToolReturnPart(
        tool_name=message.tool_name or "unknown",
        content=message.text or _EMPTY_RESULT,
        tool_call_id=message.tool_call_id or "",
        timestamp=message.at,
    )


@_once
def _response(message: Message) -> ModelResponse:
    """An answer with the message's own ids."""
    response = _kept_response(message)
    if response is None:
        parts: list[ModelResponsePart] = [TextPart(message.text)] if message.text else []
        parts += [ToolCallPart(c.name, c.arguments, c.id) for c in message.tool_calls]
        response = ModelResponse(parts=parts, timestamp=message.at)
    # A kept response says the same as its message, so its calls are the message's, in order.
    calls = iter(message.tool_calls)
    parts = [
        replace(part, args=_sendable(part.args), tool_call_id=next(calls).id)
        if isinstance(part, ToolCallPart)
        else part
        for part in response.parts
    ]
    return replace(response, parts=parts)


def _kept_response(message: Message) -> ModelResponse | None:
    if not message.raw:
        return None
    try:
        response = _RESPONSE.validate_json(message.raw)
    except ValueError:
        return None
    said = [(call.name, call.arguments) for call in message.tool_calls]
    kept = [(call.name, call.arguments) for call in _calls(response)]
    return response if (response.text or "") == message.text and kept == said else None


def _calls(response: ModelResponse) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=_as_text(part.args))
        for part in response.parts
        if isinstance(part, ToolCallPart)
    )


def _as_text(arguments: Any) -> str:
    if isinstance(arguments, str):
        return arguments or "{}"
    return pydantic_core.to_json(arguments or {}).decode()


def _sendable(arguments: Any) -> Any:
    """`arguments` as a JSON object: providers refuse a request that holds anything else.

    pydantic-ai wraps most of these itself, but takes NaN for JSON and sends it on.
    """
    if not isinstance(arguments, str) or not arguments:
        return arguments
    try:
        value = pydantic_core.from_json(arguments, allow_inf_nan=False)
    except ValueError:
        return {"INVALID_JSON": arguments}
    return arguments if isinstance(value, dict) else {"INVALID_JSON": arguments}


def _usage(response: ModelResponse) -> Usage:
    cost = response.usage.cost
    if cost is None:
        try:
            cost = response.cost().total_price
        except (LookupError, ValueError, AssertionError):
            # An unknown model or provider, or a response that reported no usage.
            cost = None
    return Usage(
        input_tokens=response.usage.input_tokens,
        output_tokens=response.usage.output_tokens,
        cost=None if cost is None else float(cost),
    )


def _repaired(part: ModelResponsePart) -> ModelResponsePart:
    if isinstance(part, TextPart):
        return replace(part, content=without_surrogates(part.content))
    if isinstance(part, ToolCallPart) and isinstance(part.args, str):
        return replace(part, args=without_surrogates(part.args))
    return part
