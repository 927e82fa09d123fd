"""Tools that users write: found by name, described by their signature, bounded in time.

A tool is a function in a module or a package; its worker knows it through perdure.toml alone.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from perdure.domain.states import EventKind, ToolStatus, TurnState
from tests.support import model_stack, watching
from tests.support.openai_server import OpenAIServer, calls, says
from tests.support.stack import Stack, fresh_key, running_stack

TIMEOUT = 60


async def test_a_function_named_in_the_settings_is_offered_by_its_signature_and_called(
    models: Stack, provider: OpenAIServer
) -> None:
    """Plain and async functions alike."""
    key = fresh_key("functions")
    provider.script(
        calls(("1", "add", '{"a": 2, "b": 3}'), ("2", "add_async", '{"a": "4"}')), says("done")
    )

    result = await models.client.ask(key, "add", timeout=TIMEOUT)

    assert [(tool.name, tool.status) for tool in result.tools] == [
        ("add", ToolStatus.OK),
        ("add_async", ToolStatus.OK),
    ]
    assert await watching.results(models, key) == ["5", "5"]
    offered = {
        tool["function"]["name"]: tool["function"] for tool in provider.requests[0].body["tools"]
    }
    assert offered["add"]["description"] == "Add two numbers."
    schema = offered["add"]["parameters"]
    assert schema["properties"]["a"] == {"type": "integer", "description": "the first."}
    assert schema["required"] == ["a"]
    assert not schema["additionalProperties"]
    assert "context" not in offered["whoami"]["parameters"]["properties"]


async def test_an_installed_package_brings_its_tools_by_entry_point(
    temporal_address: str, provider: OpenAIServer, tmp_path: Path
) -> None:
    site = tmp_path / "site"
    info = site / "weather_tools-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: weather-tools\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[perdure.tools]\nforecast = weather_tools:forecast\n")
    (site / "weather_tools.py").write_text(
        "from perdure.tools import tool\n\n\n"
        '@tool(group="weather")\n'
        "async def forecast(city: str) -> dict[str, str]:\n"
        '    """Tomorrow\'s weather."""\n'
        '    return {"city": city, "sky": "blue"}\n'
    )
    config = f'[agents.main]\nmodel = "{model_stack.PRICED}"\ntools = ["weather"]\n'
    environ = model_stack.environ(provider) | {
        "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    }
    provider.script(calls(("1", "forecast", '{"city": "Rome"}')), says("blue"))

    async with running_stack(
        tmp_path / "home", temporal_address, config=config, environ=environ
    ) as stack:
        key = fresh_key("weather")
        assert (await stack.client.ask(key, "sky?", timeout=TIMEOUT)).text == "blue"
        (result,) = await watching.results(stack, key)

    assert json.loads(result) == {"city": "Rome", "sky": "blue"}


async def test_every_call_has_an_idempotency_key_of_its_own(
    models: Stack, provider: OpenAIServer
) -> None:
    """That it stays the same on every attempt is shown where workers are killed."""
    key = fresh_key("keys")
    for _ in range(2):
        provider.script(
            calls(("same", "whoami", "{}"), ("same", "whoami", "{}")),
            calls(("same", "whoami", "{}")),
            says("done"),
        )
        await models.client.ask(key, "who?", timeout=TIMEOUT)

    contexts = [json.loads(result) for result in await watching.results(models, key)]
    assert [(told["turn"], told["step"]) for told in contexts] == [
        (turn, step) for turn in (1, 2) for step in (1, 1, 2)
    ]
    assert {told["session_key"] for told in contexts} == {key}
    assert len({told["idempotency_key"] for told in contexts}) == 6


async def test_a_tool_that_outlives_its_timeout_is_told_as_such_and_not_run_again(
    models: Stack, provider: OpenAIServer
) -> None:
    """An effect may still come: unknown outcome. Without an effect it is a plain error."""
    key = fresh_key("timeout")
    provider.script(calls(("1", "too_slow", "{}"), ("2", "too_slow_to_read", "{}")), says("done"))

    result = await models.client.ask(key, "hurry", timeout=TIMEOUT)

    assert result.state is TurnState.COMPLETED
    assert [tool.status for tool in result.tools] == [ToolStatus.UNKNOWN, ToolStatus.ERROR]
    for text in await watching.results(models, key):
        assert watching.code_of(text) == "timeout"
        assert "within 0.3 s" in text
    assert await watching.attempts(models, key, "run_tool") == [1, 1]


async def test_tools_that_block_past_the_heartbeat_timeout_run_once_and_block_nobody(
    models: Stack, provider: OpenAIServer
) -> None:
    """A plain function that blocks its thread, and a careless async one that blocks its loop."""
    slow = {name: fresh_key("slow") for name in ("seven_seconds", "seven_seconds_async")}
    provider.default = lambda request: (
        calls(("1", request.messages[-1]["content"], "{}"))
        if request.messages[-1]["content"] in slow
        else says("done")
    )
    waiting = [
        asyncio.create_task(models.client.ask(key, name, timeout=TIMEOUT))
        for name, key in slow.items()
    ]
    for key in slow.values():
        await watching.event(models, key, EventKind.TOOL_STARTED)

    assert (await models.client.ask(fresh_key("other"), "hello", timeout=TIMEOUT)).text == "done"
    assert not any(task.done() for task in waiting)
    assert [(await task).text for task in waiting] == ["done", "done"]
    for key in slow.values():
        assert await watching.results(models, key) == ["seven seconds"]
        assert await watching.attempts(models, key, "run_tool") == [1]


async def test_a_tool_without_a_timeout_has_the_configured_one(
    models: Stack, provider: OpenAIServer
) -> None:
    """Temporal gives the call longer than the tool's own limit, so that it can report."""
    key = fresh_key("limits")
    provider.script(calls(("1", "add", '{"a": 1}')), says("done"))
    await models.client.ask(key, "add", timeout=TIMEOUT)

    granted = [
        entry.activity_task_scheduled_event_attributes.start_to_close_timeout.ToTimedelta()
        for entry in await watching.history(models, key)
        if entry.activity_task_scheduled_event_attributes.activity_type.name == "run_tool"
    ]
    assert [time.total_seconds() > models.settings.limits.tool_timeout for time in granted] == [
        True
    ]
