"""What the transcript says is what a provider is told, and what it needs back it gets back."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from perdure.domain.messages import Message, Role, ToolCall
from perdure.models import Answer, close_models
from perdure.models.conversion import to_answer, to_history
from tests.support.asking import HELLO, answered, ask, message, result
from tests.support.openai_server import OpenAIServer, calls, says


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        await close_models()
        yield server
        await close_models()


async def test_a_conversation_goes_back_to_the_provider_as_it_was(server: OpenAIServer) -> None:
    server.script(calls(("c1", "read", '{"path":"a"}'), ("c2", "read", "{oops")), says("done"))
    first = await ask()
    await ask(
        HELLO,
        answered(2, first),
        result(3, "c1", "  A\n"),
        result(4, "c2", ""),
        message(5, Role.USER, " & "),
    )
    assistant, one, two, last = server.requests[1].messages[2:]
    assert [call["function"]["arguments"] for call in assistant["tool_calls"]] == [
        '{"path":"a"}',
        '{"INVALID_JSON":"{oops"}',
    ]
    assert (one["tool_call_id"], one["content"]) == ("c1", "  A\n")
    assert two["tool_call_id"] == "c2"
    assert last == {"role": "user", "content": " & "}


async def test_ids_that_a_server_repeats_in_every_answer_are_told_apart(
    server: OpenAIServer,
) -> None:
    server.default = lambda _: calls(("call_0", "read", "{}"), ("call_0", "read", "{}"))
    transcript = [HELLO]
    for turn in range(2):
        seq = 3 * turn + 2
        transcript.append(answered(seq, await ask(*transcript)))
        transcript += [result(seq + 1, "call_0", f"{turn}a"), result(seq + 2, "call_0", f"{turn}b")]
    await ask(*transcript)
    sent = server.requests[-1].messages
    made = [call["id"] for item in sent for call in item.get("tool_calls", ())]
    given = {item["tool_call_id"]: item["content"] for item in sent if item["role"] == "tool"}
    assert len(set(made)) == 4
    assert [given[call_id] for call_id in made] == ["0a", "0b", "1a", "1b"]


def thinking_answer() -> Answer:
    parts: list[ModelResponsePart] = [
        ThinkingPart("hm", signature="sealed", provider_name="anthropic"),
        ToolCallPart("read", '{"path": "a"}', "toolu_1"),
    ]
    return to_answer("anthropic:x", ModelResponse(parts=parts, provider_name="anthropic"))


def test_what_a_provider_needs_back_is_kept() -> None:
    history = to_history([HELLO, answered(2, thinking_answer()), result(3, "toolu_1", "A")])
    response = history[1]
    assert isinstance(response, ModelResponse)
    assert isinstance(response.parts[0], ThinkingPart)
    assert response.parts[0].signature == "sealed"


@pytest.mark.parametrize(
    "change",
    [
        {"text": "redacted"},
        {"tool_calls": ()},
        {"raw": "{"},
        {"raw": None},
        {"raw": '{"parts": 1}'},
    ],
)
def test_a_message_that_says_something_else_than_its_raw_form_wins(
    change: dict[str, object],
) -> None:
    said = answered(2, thinking_answer()).model_copy(update={"text": "said"})
    changed = said.model_copy(update=change)
    responses = [item for item in to_history([HELLO, changed]) if isinstance(item, ModelResponse)]
    assert responses[0].text == changed.text
    assert not any(isinstance(part, ThinkingPart) for part in responses[0].parts)
    names = [part.tool_name for part in responses[0].parts if isinstance(part, ToolCallPart)]
    assert names == [call.name for call in changed.tool_calls]


def test_an_empty_answer_leaves_no_trace_between_two_messages() -> None:
    history = to_history([HELLO, message(2, Role.ASSISTANT), message(3, Role.USER, "again")])
    assert [type(item) for item in history] == [ModelRequest]
    texts = [part.content for part in history[0].parts if isinstance(part, UserPromptPart)]
    assert texts == ["hello", "again"]


@pytest.mark.parametrize(
    "arguments", ["", "{}", "NaN", '{"a": NaN}', "[1]", '"x"', "{", '{"a": 1} x']
)
async def test_whatever_arguments_a_model_made_the_provider_gets_an_object(
    server: OpenAIServer, arguments: str
) -> None:
    call = ToolCall(id="c1", name="read", arguments=arguments)
    await ask(HELLO, message(2, Role.ASSISTANT, tool_calls=(call,)), result(3, "c1", "no"))

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    sent = server.requests[0].messages[2]["tool_calls"][0]["function"]["arguments"]
    assert isinstance(json.loads(sent, parse_constant=refuse), dict)


ids = st.sampled_from(["", "call_0", "call_2_0", "a", "b"])


@given(st.lists(st.lists(ids, min_size=1, max_size=3), max_size=4))
def test_every_call_has_an_id_of_its_own_and_its_result_the_same(turns: list[list[str]]) -> None:
    transcript: list[Message] = []
    for turn in turns:
        made = tuple(ToolCall(id=own, name="read") for own in turn)
        transcript.append(message(len(transcript) + 1, Role.ASSISTANT, tool_calls=made))
        for own in turn:
            transcript.append(result(len(transcript) + 1, own, f"r{len(transcript) + 1}"))
    parts = [part for item in to_history(transcript) for part in item.parts]
    made_ids = [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)]
    results = [part for part in parts if isinstance(part, ToolReturnPart)]
    assert len(set(made_ids)) == len(made_ids)
    assert [part.tool_call_id for part in results] == made_ids
    assert [part.content for part in results] == [m.text for m in transcript if m.role is Role.TOOL]
