"""Model calls of a turn: cheap in history, patient at the start, bounded in steps and in size.

Each test goes through `SessionClient`, a real Temporal server and a real worker; the provider is a
real HTTP server on loopback that records what it was asked.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.client import SessionClient
from perdure.config import load_settings
from perdure.domain.errors import NotFound
from perdure.domain.states import TurnState
from tests.support import watching
from tests.support.model_stack import AGENTS
from tests.support.openai_server import OpenAIServer, Request, calls, says
from tests.support.stack import Stack, fresh_key, until

TIMEOUT = 60


async def test_a_hundred_model_calls_over_a_large_context_stay_under_a_megabyte_of_history(
    models: Stack, provider: OpenAIServer
) -> None:
    """Promise 1."""
    key = fresh_key("hundred")
    text = "All the words of a long report. " * 13_500
    for number in range(49):
        provider.script(calls((f"c{number}", "add", json.dumps({"a": number}))))
    provider.script(says("halfway"))
    for number in range(49):
        provider.script(calls((f"c{number}", "add", json.dumps({"a": number}))))
    provider.script(says("all added"))

    assert (await models.client.ask(key, text, timeout=TIMEOUT)).text == "halfway"
    assert (await models.client.ask(key, "go on", timeout=TIMEOUT)).text == "all added"

    assert len(provider.requests) == 100
    assert all(len(json.dumps(request.body)) > 420_000 for request in provider.requests)
    assert await watching.history_bytes(models, key) < 1_000_000


async def test_ten_silent_seconds_before_the_first_token_cost_no_attempt(
    models: Stack, provider: OpenAIServer
) -> None:
    """Promise 12: twice the heartbeat timeout, spent importing a tool and waiting for a provider,
    while another session of the same worker waits for its own first token."""
    importing, waiting = fresh_key("import"), fresh_key("silent")
    provider.default = lambda request: says(
        "at last", wait=10 if request.messages[-1]["content"] == "wait" else 0
    )

    results = await asyncio.gather(
        models.client.ask(importing, "import", agent="patient", timeout=TIMEOUT),
        models.client.ask(waiting, "wait", timeout=TIMEOUT),
    )

    assert [result.text for result in results] == ["at last"] * 2
    assert len(provider.requests) == 2
    for key in (importing, waiting):
        assert [step.attempts for step in await watching.step_rows(models, key)] == [1]
        await until(lambda key=key: watching.at_rest(models, key))
        assert await watching.attempts(models, key, "take_step") == [1]


async def test_a_turn_ends_with_a_clear_error_at_its_step_limit(
    models: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("steps")
    provider.default = lambda _: calls(("c", "add", '{"a": 1}'))

    result = await models.client.ask(key, "never stop", agent="hasty", timeout=TIMEOUT)

    assert result.state is TurnState.FAILED
    assert result.error is not None
    assert result.error["code"] == "limit_exceeded"
    assert "limit of 3 steps" in result.text
    assert "max_steps" in result.text
    assert len(provider.requests) == 3
    assert [tool.status for tool in result.tools] == ["ok"] * 3

    provider.default = lambda _: says("rested")
    assert (await models.client.ask(key, "and now?", timeout=TIMEOUT)).text == "rested"


async def test_a_context_larger_than_the_window_is_cut_at_whole_exchanges(
    models: Stack, provider: OpenAIServer
) -> None:
    """No provider ever sees a result without its call or a call without its result."""
    key = fresh_key("window")
    for number in range(12):
        called = [(f"{number}-{index}", "add", json.dumps({"a": index})) for index in range(3)]
        provider.script(calls(*called), says(f"answer {number} " + "and more words " * 20))
        await models.client.ask(key, f"question {number}", agent="small", timeout=TIMEOUT)

    assert len(provider.requests) == 24
    for number, request in enumerate(provider.requests):
        _assert_whole(request)
        asked = f"question {number // 2}"
        assert asked in [m["content"] for m in request.messages if m["role"] == "user"]
    last = provider.requests[-1]
    assert "question 0" not in json.dumps(last.messages)
    assert len(last.messages) > 4
    assert (await models.client.history(key)).total == 12 * 6


async def test_a_message_larger_than_the_window_still_reaches_the_model(
    models: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("large")
    text = "words and words " * 2_000
    provider.script(calls(("c", "add", '{"a": 1}')), says("read"))

    assert (await models.client.ask(key, text, agent="small", timeout=TIMEOUT)).text == "read"
    for request in provider.requests:
        assert request.messages[1] == {"role": "user", "content": text}
        _assert_whole(request)


async def test_an_agent_that_left_the_configuration_fails_its_turn_and_not_its_session(
    temporal_address: str, models: Stack, provider: OpenAIServer
) -> None:
    """The session is the agent's for ever; when it is back, so is the session."""
    key = fresh_key("leaver")
    assert (await models.client.ask(key, "hello", agent="hasty", timeout=TIMEOUT)).text == "fine"
    (models.home / "perdure.toml").write_text(AGENTS.replace("agents.hasty", "agents.other"))
    models.worker.terminate()
    models.worker.start()
    try:
        result = await models.client.ask(key, "still there?", timeout=TIMEOUT)
        newer = load_settings(models.home, models.environ)
        async with SessionClient.connect(newer) as client:
            with pytest.raises(NotFound, match="no agent 'hasty'"):
                await client.send(key, "and you?")
    finally:
        (models.home / "perdure.toml").write_text(AGENTS)
        models.worker.terminate()
        models.worker.start()

    assert result.state is TurnState.FAILED
    assert "no agent 'hasty'" in result.text
    assert "Configured agents" in result.text
    assert (await models.client.ask(key, "back?", timeout=TIMEOUT)).text == "fine"


async def test_a_tool_that_cannot_be_loaded_fails_the_turn_by_its_name(
    models: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("broken")

    result = await models.client.ask(key, "hello", agent="broken", timeout=TIMEOUT)

    assert result.state is TurnState.FAILED
    assert "tests.support.user_tools:no_such_thing" in result.text
    assert provider.requests == []


def _assert_whole(request: Request) -> None:
    """Every call is followed at once by its results, in call order, and no result stands alone."""
    system, *rest = request.messages
    assert system["role"] == "system"
    assert rest[0]["role"] == "user"
    awaited: list[str] = []
    for message in rest:
        if message["role"] == "tool":
            assert awaited, "a result without a call"
            assert message["tool_call_id"] == awaited.pop(0)
        else:
            assert not awaited, "a call without its result"
            awaited = [call["id"] for call in message.get("tool_calls") or ()]
    assert not awaited, "a call without its result"
