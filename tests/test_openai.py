"""OpenAI's protocols, called by the `openai` package as anyone would use it."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from perdure.domain.access import Scope
from perdure.domain.labels import Label
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.openai_server import OpenAIServer, calls, says
from tests.support.stack import Stack, running_stack, until
from tests.support.watching import transcript

CONFIG = """
[agents.main]
[agents.other]
[agents.spoken]
model = "openai-chat:gpt-4o-mini"
tools = ["tests.support.user_tools:add"]
[[policy.rules]]
id = "no-plans"
hook = "PRE_OUTPUT"
priority = 10
when = [
  { field = "agent", op = "equals", value = "main" },
  { field = "text", op = "contains", value = "the plan" },
]
action = "BLOCK"
"""
SESSION = "X-Perdure-Session"


@pytest.fixture(scope="module")
async def provider() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        yield server


@pytest.fixture(scope="module")
async def home(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory, provider: OpenAIServer
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("openai")
    environ = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test"}
    async with running_stack(home, temporal_address, config=CONFIG, environ=environ) as running:
        yield running


@pytest.fixture(scope="module")
async def served(home: Stack) -> AsyncIterator[GatewayProcess]:
    async with running_gateway(home) as gateway:
        yield gateway


@pytest.fixture(scope="module")
async def client(served: GatewayProcess) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", timeout=60) as client:
        yield client


def user(name: str) -> str:
    return f"{name}-{time.time_ns()}"


def said(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


# Chat completions ----------------------------------------------------------------------------


async def test_a_completion_is_a_turn(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="main", messages=said("/say hello"))
    (choice,) = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("hello", "stop")
    assert answer.model == "main"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.completion_tokens > 0


async def test_a_synchronous_client_is_served_too(served: GatewayProcess) -> None:
    def ask() -> str | None:
        with OpenAI(base_url=f"{served.url}/v1", api_key="none") as client:
            answer = client.chat.completions.create(model="main", messages=said("/say sync"))
            streamed = client.chat.completions.create(
                model="main", messages=said("/say sync"), stream=True
            )
            text = "".join(chunk.choices[0].delta.content or "" for chunk in streamed)
            assert text == answer.choices[0].message.content
            return text

    assert await asyncio.to_thread(ask) == "sync"


async def test_a_stream_tells_the_text_the_reason_and_the_usage(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="main",
        messages=said("/sleep 1\n---\n/say one two three"),
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    told = [chunk for chunk in chunks if chunk.choices]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in told) == "one two three"
    assert [chunk.choices[0].finish_reason for chunk in told][-1] == "stop"
    assert not chunks[-1].choices
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0
    assert len({chunk.id for chunk in chunks}) == 1


async def test_text_is_streamed_while_the_model_speaks_and_ends_with_the_answer(
    client: AsyncOpenAI, provider: OpenAIServer
) -> None:
    words = [f"w{number} " for number in range(8)]
    provider.script(
        says(*words, pause=0.2),
        calls(("c1", "add", '{"a": 1, "b": 2}')),
        says("It ", "is ", "cut", pause=0.2, finish_reason="length"),
    )
    stream = await client.chat.completions.create(
        model="spoken", messages=said("Count."), stream=True
    )
    pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert len([piece for piece in pieces if piece]) > 2
    assert "".join(pieces) == "".join(words)
    stream = await client.chat.completions.create(
        model="spoken", messages=said("Add."), stream=True
    )
    choices = [chunk.choices[0] async for chunk in stream]
    assert "".join(choice.delta.content or "" for choice in choices).startswith("It is cut")
    assert choices[-1].finish_reason == "length"


async def test_a_user_goes_on_with_a_conversation_of_their_own(
    client: AsyncOpenAI, home: Stack
) -> None:
    bob = user("Bob Ü")
    for number in range(2):
        history = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "never sent"},
            {"role": "assistant", "content": "never said"},
            *said(f"/say {number}"),
        ]
        raw = await client.chat.completions.with_raw_response.create(
            model="main", messages=history, user=bob
        )
        key = raw.headers[SESSION]
        assert raw.parse().choices[0].message.content == str(number)
    assert key.startswith("default:Bob@20@C3@9C-")
    texts = [message.text for message in await transcript(home, key)]
    assert texts == ["/say 0", "0", "/say 1", "1"]
    # With another agent it is another conversation.
    other = await client.chat.completions.with_raw_response.create(
        model="other", messages=said("/say 2"), user=bob
    )
    assert other.headers[SESSION] == f"{key}~agent~other"


async def test_without_a_session_the_messages_given_begin_one_with_their_roles(
    client: AsyncOpenAI, home: Stack
) -> None:
    history = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "My name is Bob."}]},
        {"role": "assistant", "content": "Hello Bob.", "tool_calls": None},
        *said("/say next"),
    ]
    raw = await client.chat.completions.with_raw_response.create(model="main", messages=history)
    key = raw.headers[SESSION]
    view = await home.client.context.at(key, 1)
    told = [(message.role, message.text) for message in view.messages]
    assert told == [
        ("user", "[Instructions of the caller]\nBe brief."),
        ("user", "My name is Bob."),
        ("assistant", "Hello Bob."),
        ("user", "/say next"),
    ]
    again = await client.chat.completions.create(
        model="main", messages=said("/say more"), extra_headers={SESSION: key}
    )
    assert again.choices[0].message.content == "more"
    assert [message.text for message in await transcript(home, key)][-3:] == [
        "next",
        "/say more",
        "more",
    ]


async def test_a_request_sent_again_is_the_same_message(client: AsyncOpenAI, home: Stack) -> None:
    name = user("again")
    for _ in range(2):
        answer = await client.chat.completions.with_raw_response.create(
            model="main",
            messages=said("/say once"),
            user=name,
            extra_headers={"Idempotency-Key": "order-1"},
        )
        assert answer.parse().choices[0].message.content == "once"
    # What the package itself sends when it tries again.
    for count in ("0", "1", "2"):
        answer = await client.chat.completions.with_raw_response.create(
            model="main",
            messages=said("/say twice"),
            user=name,
            extra_headers={"x-stainless-retry-count": count},
        )
    texts = [message.text for message in await transcript(home, answer.headers[SESSION])]
    assert texts == ["/say once", "once", "/say twice", "twice"]
    # Meant twice, it is said twice.
    await client.chat.completions.create(model="main", messages=said("/say twice"), user=name)
    assert len(await transcript(home, answer.headers[SESSION])) == 6


async def test_a_new_conversation_is_found_again_by_a_retry(client: AsyncOpenAI) -> None:
    text = f"/say {user('found')}"
    keys = []
    for headers in ({}, {"x-stainless-retry-count": "1"}, {"x-stainless-retry-count": "0"}):
        answer = await client.chat.completions.with_raw_response.create(
            model="main", messages=said(text), extra_headers=headers
        )
        keys.append(answer.headers[SESSION])
    assert keys[0] == keys[1] != keys[2]


async def test_a_client_that_gives_up_waiting_and_tries_again_finds_its_answer(
    served: GatewayProcess, home: Stack
) -> None:
    name = user("patient")
    async with AsyncOpenAI(
        base_url=f"{served.url}/v1", api_key="none", timeout=1.5, max_retries=4
    ) as impatient:
        answer = await impatient.chat.completions.with_raw_response.create(
            model="main", messages=said("/sleep 3\n---\n/say late"), user=name
        )
    assert answer.parse().choices[0].message.content == "late"
    texts = [message.text for message in await transcript(home, answer.headers[SESSION])]
    assert texts[-1] == "late"
    assert len([text for text in texts if text.startswith("/sleep")]) == 1


async def test_who_hangs_up_does_not_stop_the_turn(client: AsyncOpenAI, home: Stack) -> None:
    name = user("gone")
    stream = await client.chat.completions.create(
        model="main", messages=said("/sleep 1\n---\n/say done"), user=name, stream=True
    )
    async for _ in stream:
        break
    await stream.close()

    async def answered() -> bool:
        page = await home.client.history(f"default:{name}")
        return bool(page.messages) and page.messages[-1].text == "done"

    await until(answered)


async def test_a_silent_stream_is_kept_open_and_told_when_the_gateway_stops(home: Stack) -> None:
    often = "import gateway.http.openai.asking as asking; asking.HEARTBEAT = 0.2"
    name = user("stopping")
    body = {"model": "main", "user": name, "messages": said("/sleep 60"), "stream": True}
    told = ""
    async with (
        running_gateway(home, "stopping", often) as gateway,
        gateway.client() as http,
        http.stream("POST", "/v1/chat/completions", json=body) as response,
    ):
        assert response.headers["content-type"].startswith("text/event-stream")
        async for text in response.aiter_text():
            told += text
            if told.count(": working") == 2:
                gateway.process.send_signal(signal.SIGTERM)
    *_, last = [line for line in told.splitlines() if line.startswith("data: ")]
    error = json.loads(last.removeprefix("data: "))["error"]
    assert (error["code"], error["type"]) == ("unavailable", "server_error")
    assert "[DONE]" not in told
    assert await home.client.interrupt(f"default:{name}") == 1


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"stop": ["\n"]}, "stop"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"extra_body": {"top_k": 3}}, "top_k"),
        ({"tool_choice": "required"}, "tool_choice"),
    ],
)
async def test_what_would_change_the_answer_is_refused_by_name(
    client: AsyncOpenAI, given: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(model="main", messages=said("/say no"), **given)
    assert refused.value.param == param
    assert refused.value.type == "invalid_request_error"
    assert refused.value.code in ("unsupported_parameter", "unknown_parameter")


@pytest.mark.parametrize(
    ("body", "declared", "status", "told"),
    [
        (b"[" * 100_000, "application/json", 400, "nested too deep"),
        (b'{"model":"main","input":"\xff"}', "application/json", 400, "not UTF-8"),
        (b'{"model":"main","input":"x"}', "text/plain", 415, "not declared as JSON"),
        (
            b'{"model":"main","input":"/say x","metadata":{"k":"\\ud800"}}',
            "application/json",
            400,
            "metadata.k",
        ),
        (
            b'{"model":"main","input":[{"role":"system","content":"\\ud800"},'
            b'{"role":"user","content":"/say x"}]}',
            "application/json",
            400,
            "not valid Unicode",
        ),
    ],
    ids=["nested", "latin", "text", "metadata", "earlier"],
)
@pytest.mark.parametrize("path", ["chat/completions", "responses"])
async def test_a_body_that_cannot_be_read_or_given_back_is_refused_and_sends_nothing(
    served: GatewayProcess, path: str, body: bytes, declared: str, status: int, told: str
) -> None:
    if path == "chat/completions":
        body = body.replace(b'"input":', b'"messages":')
    async with httpx2.AsyncClient(base_url=served.url) as http:
        headers = {"content-type": declared, SESSION: f"default:{user('unread')}"}
        refused = await http.post(f"/v1/{path}", content=body, headers=headers)
        assert refused.status_code == status
        assert told in refused.json()["error"]["message"]
        assert (await http.get(f"/v1/sessions/{headers[SESSION]}")).status_code == 404


async def test_instructions_that_could_not_be_given_back_are_refused(client: AsyncOpenAI) -> None:
    content = b'{"model":"main","input":"/say x","instructions":"\\ud800"}'
    async with httpx2.AsyncClient(base_url=str(client.base_url)) as http:
        headers = {"content-type": "application/json"}
        refused = await http.post("responses", content=content, headers=headers)
    assert refused.status_code == 400
    assert "not valid Unicode" in refused.json()["error"]["message"]


async def test_only_text_of_a_user_is_taken(client: AsyncOpenAI) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    refused_messages: tuple[tuple[Any, str], ...] = (
        ([{"role": "user", "content": [image]}], "messages[0].content[0]"),
        ([{"role": "tool", "tool_call_id": "c", "content": "1"}, *said("x")], "messages[0]"),
        ([*said("x"), {"role": "assistant", "content": "It is"}], "messages"),
    )
    for messages, param in refused_messages:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model="main", messages=messages)
        assert refused.value.param == param


async def test_what_tunes_sampling_is_taken(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(
        model="main",
        messages=said("/say tuned"),
        temperature=0.2,
        top_p=0.9,
        max_tokens=100,
        seed=1,
        n=1,
        stop=None,
        tools=[],
        metadata={"a": "b"},
    )
    assert answer.choices[0].message.content == "tuned"


async def test_refusals_are_the_errors_that_the_package_knows(
    client: AsyncOpenAI, served: GatewayProcess
) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        await client.chat.completions.create(model="gpt-5", messages=said("hello"))
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(
            model="main", messages=said("x"), extra_headers={SESSION: "no key"}
        )
    with pytest.raises(openai.PermissionDeniedError) as failed:
        await client.chat.completions.create(model="main", messages=said("/fail auth 1"))
    assert "API key" in failed.value.message
    once: Any = {
        "model": "main",
        "user": user("conflict"),
        "extra_headers": {"Idempotency-Key": "c"},
    }
    await client.chat.completions.create(messages=said("/say a"), **once)
    with pytest.raises(openai.ConflictError):
        await client.chat.completions.create(messages=said("/say b"), **once)
    async with httpx2.AsyncClient(base_url=served.url) as raw:
        response = await raw.post(
            "/v1/chat/completions", content="{", headers={"content-type": "application/json"}
        )
        assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_json")


async def test_what_policy_keeps_is_filtered(client: AsyncOpenAI) -> None:
    for stream in (False, True):
        answer: Any = await client.chat.completions.create(
            model="main", messages=said("/say this is the plan for all"), stream=stream
        )
        if stream:
            choices = [chunk.choices[0] async for chunk in answer]
            text = "".join(choice.delta.content or "" for choice in choices)
        else:
            choices = answer.choices
            text = choices[0].message.content
        assert choices[-1].finish_reason == "content_filter"
        assert "this is" not in text


async def test_a_failed_turn_is_an_error_in_a_stream(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model="main", messages=said("/fail auth 1"), stream=True
    )
    with pytest.raises(openai.APIError, match="API key"):
        [chunk async for chunk in stream]


# Models --------------------------------------------------------------------------------------


async def test_the_models_are_the_agents(client: AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == ["main", "other", "spoken"]
    assert (await client.models.retrieve("other")).owned_by == "perdure"
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("gpt-5")


# Responses -----------------------------------------------------------------------------------


async def test_a_response_goes_on_from_the_one_before(client: AsyncOpenAI, home: Stack) -> None:
    first = await client.responses.create(
        model="main", input="/say one", instructions="Be brief.", metadata={"a": "b"}
    )
    assert (first.output_text, first.status, first.metadata) == ("one", "completed", {"a": "b"})
    assert first.usage is not None
    assert first.usage.total_tokens > 0
    second = await client.responses.create(
        model="main",
        input=[{"role": "user", "content": [{"type": "input_text", "text": "/say two"}]}],
        previous_response_id=first.id,
    )
    assert second.output_text == "two"
    found = await client.responses.retrieve(second.id)
    assert (found.output_text, found.model, found.id) == ("two", "main", second.id)
    with pytest.raises(openai.BadRequestError) as gone_on:
        await client.responses.create(model="main", input="x", previous_response_id=first.id)
    assert gone_on.value.param == "previous_response_id"
    with pytest.raises(openai.BadRequestError):
        await client.responses.create(model="main", input="x", previous_response_id="resp_x")
    for nothing in ("resp_x", "none"):
        with pytest.raises(openai.NotFoundError):
            await client.responses.retrieve(nothing)


async def test_a_response_is_streamed_as_events(client: AsyncOpenAI) -> None:
    async with client.responses.stream(model="main", input="/sleep 1\n---\n/say a b c") as stream:
        kinds = [event.type async for event in stream]
        response = await stream.get_final_response()
    assert response.output_text == "a b c"
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_item.done") == 1
    assert "response.output_text.delta" in kinds


async def test_what_a_response_cannot_have_is_refused(client: AsyncOpenAI) -> None:
    for given in ({"background": True}, {"tools": [{"type": "web_search"}]}, {"include": ["x"]}):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(model="main", input="x", **given)
        assert refused.value.param in given
    with pytest.raises(openai.PermissionDeniedError):
        await client.responses.create(model="main", input="/fail auth 1")


# Callers -------------------------------------------------------------------------------------


async def test_a_caller_stays_in_their_tenant_and_below_their_clearance(
    home: Stack, served: GatewayProcess
) -> None:
    made = await home.client.keys.create("acme-bot", scopes={Scope.CHAT}, tenant="acme")
    client = AsyncOpenAI(base_url=f"{served.url}/v1", api_key=made.text)
    name = user("tenant")
    ask = client.chat.completions.with_raw_response.create
    answer = await ask(model="main", messages=said("/say hello"), user=name)
    key = answer.headers[SESSION]
    assert key == f"acme:{name}"
    fresh = await ask(model="main", messages=said("/say hello"))
    assert fresh.headers[SESSION].startswith(f"acme:{made.id}~thread~")
    await home.client.ask(f"default:{name}", "/say mine")
    with pytest.raises(openai.NotFoundError):
        await ask(model="main", messages=said("x"), extra_headers={SESSION: f"default:{name}"})
    # The session rises above them: they are not told what it says.
    await home.client.ask(key, "/say up", label=Label.CONFIDENTIAL)
    for stream in (False, True):
        told: Any = await client.chat.completions.create(
            model="main", messages=said("/sleep 1\n---\n/say the secret"), user=name, stream=stream
        )
        parts = [part.choices[0].delta.content async for part in told] if stream else []
        text = "".join(filter(None, parts)) if stream else told.choices[0].message.content
        assert "secret" not in text
        assert "CONFIDENTIAL" in text
    stranger = client.with_options(api_key=made.text[:-1] + "x", max_retries=0)
    with pytest.raises(openai.AuthenticationError) as refused:
        await stranger.models.list()
    assert refused.value.code == "unauthenticated"
    await client.close()
