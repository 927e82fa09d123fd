"""Interrupts: whatever a turn waits for, it stops, keeps what it has, and the session goes on."""

from __future__ import annotations

import asyncio

import pytest

from perdure.domain.errors import NotFound
from perdure.domain.states import EventKind, ToolStatus, TurnState
from perdure.store.transcript import TurnResult
from tests.support import user_tools, watching
from tests.support.openai_server import OpenAIServer, Request, calls, fails, says
from tests.support.stack import Stack, fresh_key, until

TIMEOUT = 60


async def test_an_interrupt_reaches_a_model_call_blocked_on_its_socket_and_keeps_the_text(
    models: Stack, provider: OpenAIServer
) -> None:
    """Promise 13: the call itself ends, long before anyone could take its worker for dead, and
    the provider sees its connection closed."""
    key = fresh_key("blocked")
    provider.script(says("The first part, ", "the second, ", ending="hang"))

    async def heard() -> bool:
        return "second" in "".join(row.text for row in await watching.delta_rows(models, key))

    # Listened to, so that the test sees when the text has arrived at the worker.
    async with watching.listening(models, key):
        ticket = await models.client.send(key, "tell me")
        request = await provider.arrived()
        await until(heard)
    assert await models.client.interrupt(key) == 1
    result = await models.client.wait(key, ticket.message_id, timeout=TIMEOUT)

    assert result.state is TurnState.INTERRUPTED
    assert result.text == "The first part, the second,\n\n[interrupted]"
    await asyncio.wait_for(request.closed.wait(), TIMEOUT)
    assert await watching.attempts(models, key, "take_step") == [1]
    assert await watching.delta_rows(models, key) == []
    after = await _next_message(models, provider, key)
    assert after.messages[-2] == {"role": "assistant", "content": result.text}


async def test_an_interrupt_reaches_a_provider_that_has_not_said_a_word(
    models: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("silent")
    provider.script(says("never", wait=600))
    ticket = await models.client.send(key, "tell me")
    request = await provider.arrived()

    assert await models.client.interrupt(key) == 1
    result = await models.client.wait(key, ticket.message_id, timeout=TIMEOUT)

    assert (result.state, result.text) == (TurnState.INTERRUPTED, "[interrupted]")
    await asyncio.wait_for(request.closed.wait(), TIMEOUT)
    await _next_message(models, provider, key)


async def test_an_interrupt_during_a_retry_back_off_ends_the_wait(
    models: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("back-off")
    provider.script(fails(429, retry_after="3600"))
    ticket = await models.client.send(key, "tell me")

    async def waits() -> bool:
        return any(waiting.attempt == 2 for waiting in await watching.pending(models, key))

    await until(waits)
    assert await models.client.interrupt(key) == 1
    result = await models.client.wait(key, ticket.message_id, timeout=TIMEOUT)

    assert result.state is TurnState.INTERRUPTED
    assert len(provider.requests) == 1
    await _next_message(models, provider, key)


async def test_an_interrupt_during_tools_says_of_each_what_is_known(
    models: Stack, provider: OpenAIServer
) -> None:
    """What was done stays done, what had no effect has none, and what may have had one says so."""
    key = fresh_key("tools")
    provider.script(
        calls(("1", "add", '{"a": 1}'), ("2", "late", "{}"), ("3", "pay", "{}")), says("never")
    )
    ticket = await models.client.send(key, "work")

    async def under_way() -> bool:
        done = await watching.events(models, key, EventKind.TOOL_COMPLETED)
        started = await watching.events(models, key, EventKind.TOOL_STARTED)
        paid = user_tools.effects(watching.workspace(models, key))
        return (len(done), len(started), len(paid)) == (1, 3, 1)

    await until(under_way)
    assert await models.client.interrupt(key) == 1
    result = await models.client.wait(key, ticket.message_id, timeout=TIMEOUT)

    assert result.state is TurnState.INTERRUPTED
    assert [tool.status for tool in result.tools] == [
        ToolStatus.OK,
        ToolStatus.ERROR,
        ToolStatus.UNKNOWN,
    ]
    texts = await watching.results(models, key)
    assert texts[0] == "2"
    assert "late was interrupted" in texts[1]
    assert "pay was interrupted" in texts[2]
    assert await watching.attempts(models, key, "run_tool") == [1, 1, 1]
    assert len(provider.requests) == 1
    after = await _next_message(models, provider, key)
    assert [m["tool_call_id"] for m in after.messages if m["role"] == "tool"] == ["1", "2", "3"]


async def test_an_interrupt_with_nothing_under_way_changes_nothing(
    models: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("nothing")
    with pytest.raises(NotFound):
        await models.client.interrupt(key)
    await models.client.ask(key, "hello", timeout=TIMEOUT)
    # The answer is out as soon as it commits; its workflow hears of it a moment later.
    await until(lambda: watching.at_rest(models, key))

    assert await models.client.interrupt(key) is None
    assert (await models.client.ask(key, "hello again", timeout=TIMEOUT)).text == "fine"
    await models.client.close(key)
    assert await models.client.interrupt(key) is None


async def test_an_interrupt_stops_one_turn_and_leaves_those_that_wait(
    models: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("queue")
    provider.script(says("never", wait=600))
    first = await models.client.send(key, "first")
    await provider.arrived()
    second = await models.client.send(key, "second")
    third = await models.client.send(key, "third")

    assert await models.client.interrupt(key) == 1
    results: list[TurnResult] = [
        await models.client.wait(key, ticket.message_id, timeout=TIMEOUT)
        for ticket in (first, second, third)
    ]

    assert [result.state for result in results] == [
        TurnState.INTERRUPTED,
        TurnState.COMPLETED,
        TurnState.COMPLETED,
    ]
    assert [result.turn for result in results] == [1, 2, 3]


async def _next_message(models: Stack, provider: OpenAIServer, key: str) -> Request:
    """The session answers the next message; the request that it made for it."""
    provider.forget()
    result = await models.client.ask(key, "and now?", timeout=TIMEOUT)
    assert (result.state, result.text) == (TurnState.COMPLETED, "fine")
    (request,) = provider.requests
    assert request.messages[-1] == {"role": "user", "content": "and now?"}
    return request
