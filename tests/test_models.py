"""A model call ends in one answer or one sorted failure, over a real HTTP connection."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.errors import Code
from perdure.domain.messages import Role, ToolCall
from perdure.models import (
    FailureKind,
    ModelChain,
    ModelFailure,
    Piece,
    Prompt,
    close_models,
    resolve,
)
from perdure.models.failure import clean
from tests.support.asking import HELLO, MODEL, READ, Ear, ask, message
from tests.support.openai_server import OpenAIServer, Reply, calls, fails, says

KEY = "a-very-secret-api-key"


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        await close_models()
        yield server
        await close_models()


async def failure(*models: str, silence: float = 30.0) -> ModelFailure:
    with pytest.raises(ModelFailure) as raised:
        await ask(models=models or (MODEL,), silence=silence)
    return raised.value


async def test_text_is_streamed_as_it_comes_and_the_answer_is_the_whole(
    server: OpenAIServer,
) -> None:
    server.script(says("Hel", "lo ", "there"))
    ear = Ear()
    answer = await ask(ear=ear)
    assert [piece.text for piece in ear.pieces] == ["Hel", "lo ", "there"]
    assert (answer.text, answer.tool_calls, answer.finish_reason) == ("Hello there", (), "stop")
    assert answer.model == MODEL


async def test_the_provider_gets_instructions_transcript_and_tools(server: OpenAIServer) -> None:
    await ask()
    sent = server.requests[0]
    assert sent.messages == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello"},
    ]
    function = sent.body["tools"][0]["function"]
    assert (function["name"], function["description"]) == ("read", "Reads a file.")
    assert function["parameters"]["properties"] == READ.parameters["properties"]
    assert sent.headers["authorization"] == f"Bearer {KEY}"


async def test_tool_calls_come_as_the_model_made_them_valid_json_or_not(
    server: OpenAIServer,
) -> None:
    server.script(calls(("c1", "read", '{"path": "a"}'), ("c2", "read", '{"path": ')))
    answer = await ask()
    assert answer.tool_calls == (
        ToolCall(id="c1", name="read", arguments='{"path": "a"}'),
        ToolCall(id="c2", name="read", arguments='{"path": '),
    )
    assert answer.finish_reason == "tool_call"


async def test_usage_is_counted_and_priced_where_the_price_is_known(server: OpenAIServer) -> None:
    server.default = lambda _: says("x", usage=(1_000_000, 1_000_000))
    known = await ask(models=["openai-chat:gpt-4o-mini"])
    unknown = await ask()
    assert (known.usage.input_tokens, known.usage.output_tokens) == (1_000_000, 1_000_000)
    assert known.usage.cost == pytest.approx(0.15 + 0.60)
    assert unknown.usage.input_tokens == 1_000_000
    assert unknown.usage.cost is None


async def test_a_provider_that_reports_no_usage_has_no_cost(server: OpenAIServer) -> None:
    server.script(says("x", usage=None))
    answer = await ask(models=["openai-chat:gpt-4o-mini"])
    assert (answer.text, answer.usage.cost) == ("x", None)


@pytest.mark.parametrize(
    ("reply", "text", "reason"),
    [
        (says("cut of", finish_reason="length"), "cut of", "length"),
        (says("no", finish_reason="content_filter"), "no", "content_filter"),
        (Reply(refusal="I will not."), "I will not.", "content_filter"),
        (says("odd", finish_reason="guardrail"), "odd", "guardrail"),
        (Reply(), "", "stop"),
    ],
)
async def test_an_answer_tells_why_it_ended(
    server: OpenAIServer, reply: Reply, text: str, reason: str
) -> None:
    server.script(reply)
    ear = Ear()
    answer = await ask(ear=ear)
    assert (answer.text, answer.finish_reason) == (text, reason)
    assert ear.text == text


async def test_a_character_cut_in_two_by_the_server_is_whole_again(server: OpenAIServer) -> None:
    server.script(says("a\ud83d", "\ude00b", "\ud83d"))
    ear = Ear()
    answer = await ask(ear=ear)
    assert answer.text == "a😀b�"
    assert ear.text.startswith("a😀b")


@pytest.mark.parametrize(
    ("reply", "kind", "retryable", "code"),
    [
        (fails(429), "rate_limit", True, Code.RATE_LIMITED),
        (fails(429, code="insufficient_quota"), "quota", False, Code.LIMIT_EXCEEDED),
        (fails(500), "server_error", True, Code.UNAVAILABLE),
        (fails(503, "we are overloaded"), "overloaded", True, Code.UNAVAILABLE),
        (fails(408), "timeout", True, Code.TIMEOUT),
        (fails(401), "auth", False, Code.DENIED),
        (fails(403), "auth", False, Code.DENIED),
        (fails(404, code="model_not_found"), "unknown_model", False, Code.NOT_FOUND),
        (fails(400), "bad_request", False, Code.INVALID_ARGUMENT),
        (
            fails(400, code="context_length_exceeded"),
            "context_overflow",
            False,
            Code.LIMIT_EXCEEDED,
        ),
        (
            Reply(status=502, body="<html><b>Bad</b> gateway"),
            "server_error",
            True,
            Code.UNAVAILABLE,
        ),
        (Reply(body="<html>a login page"), "bad_response", True, Code.UNAVAILABLE),
        (Reply(ending="reset"), "connection", True, Code.UNAVAILABLE),
        (says("par", "tial", ending="reset"), "connection", True, Code.UNAVAILABLE),
        (says("par", "tial", ending="cut"), "connection", True, Code.UNAVAILABLE),
        (says("par", "tial", ending="error"), "server_error", True, Code.UNAVAILABLE),
    ],
)
async def test_a_failure_is_sorted_and_is_asked_for_once(
    server: OpenAIServer, reply: Reply, kind: str, retryable: bool, code: Code
) -> None:
    server.script(reply)
    failed = await failure()
    assert (failed.kind, failed.retryable, failed.code) == (kind, retryable, code)
    assert failed.models == (MODEL,)
    assert MODEL in failed.message
    assert failed.hint
    # The durable layer retries, and no SDK beneath it does.
    assert len(server.requests) == 1


@pytest.mark.parametrize("reply", [says("x", ending="hang"), says("x", wait=600)])
async def test_a_provider_that_falls_silent_is_a_timeout(
    server: OpenAIServer, reply: Reply
) -> None:
    server.script(reply)
    failed = await failure(silence=0.2)
    assert (failed.kind, failed.retryable) == (FailureKind.TIMEOUT, True)
    await server.requests[0].closed.wait()


async def test_a_slow_first_token_within_the_silence_is_waited_for(server: OpenAIServer) -> None:
    server.script(says("at ", "last", wait=0.3, pause=0.1))
    assert (await ask()).text == "at last"


async def test_the_wait_a_provider_asks_for_is_read_as_seconds_or_date(
    server: OpenAIServer,
) -> None:
    server.script(fails(429, retry_after="7"))
    assert (await failure()).retry_after == 7
    server.script(fails(429, retry_after="0.25"))
    assert (await failure()).retry_after == 0.25
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    server.script(fails(503, retry_after=later))
    assert (await failure()).retry_after == pytest.approx(3600, abs=120)
    server.script(fails(429, retry_after="soon"))
    assert (await failure()).retry_after is None


async def test_a_failure_keeps_the_providers_words_and_no_secret(server: OpenAIServer) -> None:
    server.script(fails(401, f"Incorrect API key {KEY}, like sk-proj-abc***xyz.\n" + "y" * 5_000))
    failed = await failure()
    assert "Incorrect API key [secret], like [secret]" in failed.message
    assert len(failed.message) < 450
    assert "OPENAI_API_KEY" in failed.hint


@given(st.text(max_size=400))
def test_words_are_one_short_line_whatever_they_are(words: str) -> None:
    assert 0 < len(clean(words)) <= 300
    assert len(clean(words).splitlines()) == 1


async def test_an_unreachable_server_is_a_connection_failure_that_names_it(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://user:pass@127.0.0.1:1/v1")
    failed = await failure()
    assert (failed.kind, failed.retryable) == (FailureKind.CONNECTION, True)
    assert "http://127.0.0.1:1 " in failed.hint
    assert "pass" not in f"{failed}"


@pytest.mark.parametrize("name", ["nonsense", "nobody:model", "gpt-4o", ""])
async def test_an_unknown_model_is_said_and_not_retried(name: str) -> None:
    failed = await failure(name)
    assert (failed.kind, failed.retryable) == (FailureKind.UNKNOWN_MODEL, False)


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("openai-chat:x", "OPENAI_API_KEY"),
        ("anthropic:x", "ANTHROPIC_API_KEY"),
        ("google:x", "GOOGLE_API_KEY"),
    ],
)
async def test_a_missing_key_names_the_variable_to_set(
    monkeypatch: pytest.MonkeyPatch, name: str, variable: str
) -> None:
    for unset in (
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "ANTHROPIC_API_KEY",
        "GOOGLE_API_KEY",
        "GEMINI_API_KEY",
    ):
        monkeypatch.delenv(unset, raising=False)
    await close_models()
    failed = await failure(name)
    assert (failed.kind, failed.retryable) == (FailureKind.AUTH, False)
    assert variable in failed.hint


async def test_what_the_listener_raises_is_passed_on_as_it_is(server: OpenAIServer) -> None:
    async def deaf(_: Piece) -> None:
        raise OSError("the disk is full")

    prompt = Prompt("", [HELLO])
    with pytest.raises(OSError, match="the disk is full"):
        await ModelChain([MODEL, "rehearsal"]).answer(prompt, deaf)
    assert len(server.requests) == 1


@pytest.mark.parametrize("reply", [says("par", "tial", ending="hang"), says("x", wait=600)])
async def test_a_cancelled_call_closes_its_connection_and_leaves_the_partial_text(
    server: OpenAIServer, reply: Reply
) -> None:
    server.script(reply)
    ear = Ear()
    call = asyncio.ensure_future(ask(ear=ear))
    request = await server.arrived()
    if reply.wait == 0:
        while ear.text != "partial":
            ear.heard.clear()
            await ear.heard.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await request.closed.wait()
    assert ear.text == ("" if reply.wait else "partial")


async def test_the_next_model_answers_when_one_fails_and_its_text_is_void(
    server: OpenAIServer,
) -> None:
    server.script(says("half an ans", ending="reset"), says("whole"))
    ear = Ear()
    answer = await ask(models=["openai-chat:a", "openai-chat:b"], ear=ear)
    assert (answer.model, answer.text, ear.text) == ("openai-chat:b", "whole", "whole")
    assert [request.body["model"] for request in server.requests] == ["a", "b"]


async def test_an_unusable_name_falls_back_too(server: OpenAIServer) -> None:
    answer = await ask(message(1, Role.USER, "/say still here"), models=["nobody:x", "rehearsal"])
    assert answer.text == "still here"


async def test_a_chain_is_worth_a_retry_if_any_failure_was_and_waits_the_least_asked(
    server: OpenAIServer,
) -> None:
    server.script(fails(401), fails(429, retry_after="30"), fails(503, retry_after="4"))
    names = ("openai-chat:a", "openai-chat:b", "openai-chat:c")
    failed = await failure(*names)
    assert (failed.kind, failed.retryable, failed.retry_after) == (FailureKind.RATE_LIMIT, True, 4)
    assert failed.models == names
    assert all(name in failed.message for name in names)


async def test_a_chain_of_hopeless_failures_is_not_retried(server: OpenAIServer) -> None:
    server.script(fails(401), fails(400))
    failed = await failure("openai-chat:a", "openai-chat:b")
    assert (failed.kind, failed.retryable) == (FailureKind.AUTH, False)
    assert failed.models == ("openai-chat:a", "openai-chat:b")


async def test_a_model_is_built_once_however_many_ask_for_it(server: OpenAIServer) -> None:
    models = await asyncio.gather(*(resolve(MODEL) for _ in range(5)))
    assert all(model is models[0] for model in models)


async def test_each_event_loop_has_clients_of_its_own(server: OpenAIServer) -> None:
    async def elsewhere() -> str:
        try:
            return (await ask()).text
        finally:
            await close_models()

    texts: list[str] = []
    await ask()
    for _ in range(2):
        thread = threading.Thread(target=lambda: texts.append(asyncio.run(elsewhere())))
        thread.start()
        await asyncio.to_thread(thread.join)
    assert [*texts, (await ask()).text] == ["fine"] * 3
