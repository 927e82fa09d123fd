"""What a caller of OpenAI's protocols may ask for, and what of it is refused.

Invariant: every field of the protocols is known here. One that would change the answer in a way
that an agent cannot is refused by name; one that only tunes sampling, caching or billing is taken
and has no effect (docs/gateways.md lists both). Anything else is no field.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from gateway.admission import bytes_of
from gateway.http.openai.refusals import BadRequest
from perdure.domain.messages import Frozen, Role
from perdure.store.seeding import Earlier

#: What a caller's system and developer messages begin with where the model reads them.
INSTRUCTED = "[Instructions of the caller]\n"

_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_INSTRUCTING = frozenset({"system", "developer"})
#: Metadata is bounded as OpenAI bounds it. A length makes pydantic refuse lone surrogates, too,
#: which could not be given back: https://platform.openai.com/docs/api-reference/responses/create
_Name = Annotated[str, Field(max_length=64)]
_Value = Annotated[str, Field(max_length=512)]
_OTHERS_TOOLS = "An agent has the tools of its settings, and runs them itself."


class ContentPart(BaseModel):
    """A part of a message's content; only text can be sent."""

    model_config = ConfigDict(extra="ignore")

    type: str = Field(examples=["text"])
    text: str | None = None


class ChatMessage(BaseModel):
    """A message of a conversation, as any of OpenAI's protocols and their clients write it."""

    # Clients give an answer back with all its fields, and with those of other providers.
    model_config = ConfigDict(extra="ignore")

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None
    type: str | None = None
    tool_calls: JsonValue = None
    function_call: JsonValue = None
    audio: JsonValue = None


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(extra="forbid")

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")

    model: str = Field(description="The name of an agent.", examples=["main"])
    stream: bool | None = False
    user: str | None = Field(
        None,
        min_length=1,
        max_length=256,
        description="Whose conversation it is: the session `tenant:user` goes on.",
        examples=["bob"],
    )

    # Asked of a model, and not of an agent.
    tools: list[JsonValue] | None = Field(None, description="Refused unless empty.")
    tool_choice: JsonValue = Field(None, description="Refused unless `auto` or `none`.")
    top_logprobs: int | None = Field(None, description="Refused unless 0.")
    moderation: JsonValue = Field(None, description="Refused.")

    # Without effect.
    metadata: dict[_Name, _Value] | None = Field(None, max_length=16)
    parallel_tool_calls: bool | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: JsonValue = None
    prompt_cache_retention: JsonValue = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    store: bool | None = None
    temperature: float | None = None
    top_p: float | None = None


class ChatRequest(_Request):
    """A request for a chat completion."""

    messages: list[ChatMessage] = Field(min_length=1)
    stream_options: StreamOptions | None = None

    n: int | None = Field(None, description="Refused unless 1.")
    audio: JsonValue = Field(None, description="Refused.")
    function_call: JsonValue = Field(None, description="Refused unless `auto` or `none`.")
    functions: list[JsonValue] | None = Field(None, description="Refused unless empty.")
    logit_bias: dict[str, float] | None = Field(None, description="Refused unless empty.")
    logprobs: bool | None = Field(None, description="Refused unless false.")
    modalities: list[str] | None = Field(None, description='Refused unless `["text"]`.')
    response_format: dict[str, JsonValue] | None = Field(None, description="Refused unless text.")
    stop: str | list[str] | None = Field(None, description="Refused unless empty.")
    web_search_options: JsonValue = Field(None, description="Refused.")

    frequency_penalty: float | None = None
    max_completion_tokens: int | None = None
    max_tokens: int | None = None
    prediction: JsonValue = None
    presence_penalty: float | None = None
    reasoning_effort: str | None = None
    seed: int | None = None
    verbosity: str | None = None


class ResponseRequest(_Request):
    """A request for a response."""

    input: str | list[ChatMessage] = Field(examples=["What is new?"])
    instructions: str | None = None
    previous_response_id: str | None = Field(
        None, description="The response that this goes on from: the newest of its session."
    )

    background: bool | None = Field(None, description="Refused unless false.")
    conversation: JsonValue = Field(None, description="Refused.")
    include: list[str] | None = Field(None, description="Refused unless empty.")
    max_tool_calls: int | None = Field(None, description="Refused.")
    prompt: JsonValue = Field(None, description="Refused.")
    text: dict[str, JsonValue] | None = Field(None, description="Refused unless plain text.")

    max_output_tokens: int | None = None
    reasoning: JsonValue = None
    stream_options: JsonValue = None
    truncation: str | None = None


class Asked(Frozen):
    """What a request says: its newest message, and what was said before it."""

    newest: str
    earlier: tuple[Earlier, ...] = ()


def chat(request: ChatRequest) -> Asked:
    """What a chat request says.

    Raises:
        BadRequest: naming the field that cannot be had here.
    """
    _refuse_others(request)
    for name, given in (("functions", request.functions), ("logit_bias", request.logit_bias)):
        _refuse(name, bool(given), _OTHERS_TOOLS if name == "functions" else "")
    _refuse("function_call", request.function_call not in (None, "auto", "none"), _OTHERS_TOOLS)
    _refuse("n", request.n not in (None, 1), "A turn has one answer; ask again for another.")
    _refuse("logprobs", bool(request.logprobs))
    _refuse("audio", request.audio is not None, "Only text can be had.")
    _refuse("modalities", request.modalities not in (None, [], ["text"]), "Only text can be had.")
    _refuse("web_search_options", request.web_search_options is not None, _OTHERS_TOOLS)
    _refuse("stop", bool(request.stop), "Cut the answer where you read it.")
    _refuse_format("response_format", request.response_format)
    return _asked("messages", request.messages)


def response(request: ResponseRequest) -> Asked:
    """What a request for a response says.

    Raises:
        BadRequest: naming the field that cannot be had here.
    """
    _refuse_others(request)
    _refuse("background", bool(request.background), "Ask at /v1/sessions, which waits for nobody.")
    hint = "Use previous_response_id, user, or the header X-Perdure-Session."
    _refuse("conversation", request.conversation is not None, hint)
    _refuse("include", bool(request.include))
    _refuse("max_tool_calls", request.max_tool_calls is not None, _OTHERS_TOOLS)
    _refuse("prompt", request.prompt is not None, "The instructions are the agent's settings.")
    _refuse_format("text.format", (request.text or {}).get("format"))
    said = request.input
    messages = [ChatMessage(role="user", content=said)] if isinstance(said, str) else said
    if request.instructions:
        messages = [ChatMessage(role="system", content=request.instructions), *messages]
    return _asked("input", messages)


def _asked(param: str, messages: list[ChatMessage]) -> Asked:
    places = [place for place, one in enumerate(messages) if one.role == "user"]
    texts = [_text(f"{param}[{place}]", one) for place, one in enumerate(messages)]
    for place, text in enumerate(texts):
        bytes_of(f"{param}[{place}]", text)
    newest = places[-1] if places else 0
    if not places or any(one.role == "assistant" for one in messages[newest:]):
        hint = "An agent answers a user; it does not go on with an answer begun for it."
        raise BadRequest(param, "The newest message is not a user's.", hint)
    return Asked(
        newest=texts[newest],
        earlier=tuple(
            _earlier(one, text)
            for place, (one, text) in enumerate(zip(messages, texts, strict=True))
            if place != newest and text.strip()
        ),
    )


def _earlier(said: ChatMessage, text: str) -> Earlier:
    if said.role in _INSTRUCTING:
        return Earlier(role=Role.USER, text=f"{INSTRUCTED}{text}")
    return Earlier(role=Role.ASSISTANT if said.role == "assistant" else Role.USER, text=text)


def _text(param: str, said: ChatMessage) -> str:
    """The text of a message.

    Raises:
        BadRequest: for anything but text.
    """
    if said.type not in (None, "message"):
        raise BadRequest(param, f"{param} is no message.", reason="unsupported_parameter")
    if said.role in ("tool", "function") or said.tool_calls or said.function_call:
        message = f"{param} is of a tool of the caller."
        raise BadRequest(param, message, _OTHERS_TOOLS, "unsupported_parameter")
    if isinstance(said.content, str) or said.content is None:
        return said.content or ""
    for place, part in enumerate(said.content):
        if part.type not in _TEXT_PARTS:
            where = f"{param}.content[{place}]"
            hint = "Put files into the workspace and name them."
            raise BadRequest(where, f"{where} is not text.", hint, "unsupported_parameter")
    return "".join(part.text or "" for part in said.content)


def _refuse_others(request: _Request) -> None:
    _refuse("tools", bool(request.tools), _OTHERS_TOOLS)
    _refuse("tool_choice", request.tool_choice not in (None, "auto", "none"), _OTHERS_TOOLS)
    _refuse("top_logprobs", bool(request.top_logprobs))
    _refuse("moderation", request.moderation is not None, "The policy is the installation's.")


def _refuse_format(name: str, given: Any) -> None:
    plain = not isinstance(given, dict) or given.get("type") in (None, "text")
    _refuse(name, not plain, "Ask for the form in the message, and check what you get.")


def _refuse(name: str, given: bool, hint: str = "") -> None:
    if given:
        raise BadRequest(name, f"{name} is not possible here.", hint, "unsupported_parameter")
