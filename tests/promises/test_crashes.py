"""Workers that die in the middle of a model call or a tool, and deploys that stop them there.

Each test has a worker of its own, killed with SIGKILL where it says so. What was paid is counted
at the provider, what had an effect in the workspace.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from gateway.local import running_server
from perdure.domain.states import EventKind, ToolStatus, TurnState
from tests.support import model_stack, user_tools, watching
from tests.support.openai_server import OpenAIServer, calls, says
from tests.support.stack import Stack, fresh_key, running_stack, until

TIMEOUT = 90


@pytest.fixture
async def mortal(
    temporal_address: str, provider: OpenAIServer, tmp_path: Path
) -> AsyncIterator[Stack]:
    """A stack whose worker may die."""
    async with _stack(tmp_path / "home", temporal_address, provider) as running:
        yield running


def _stack(home: Path, address: str, provider: OpenAIServer) -> AbstractAsyncContextManager[Stack]:
    config = model_stack.AGENTS.replace("step_attempts = 3", "step_attempts = 6")
    return running_stack(home, address, config=config, environ=model_stack.environ(provider))


def _open_gate(stack: Stack, key: str) -> None:
    (watching.workspace(stack, key) / "gate").touch()


async def test_killed_again_and_again_a_turn_pays_at_most_one_more_call_for_each_kill(
    mortal: Stack, provider: OpenAIServer
) -> None:
    """Killed in a model call, in a tool without effect, and in the next model call: the message is
    neither lost nor doubled, and no committed answer is paid twice."""
    key = fresh_key("killed")
    provider.script(
        says("half of it", ending="hang"),
        calls(("1", "look", "{}")),
        says("half of it", ending="hang"),
        says("whole"),
    )
    ticket = await mortal.client.send(key, "hello")
    await provider.arrived(1)
    mortal.worker.kill()
    mortal.worker.start()

    async def looking(times: int) -> bool:
        return len(user_tools.effects(watching.workspace(mortal, key))) == times

    await until(lambda: looking(1))
    mortal.worker.kill()
    mortal.worker.start()
    await until(lambda: looking(2))
    _open_gate(mortal, key)
    await provider.arrived(3)
    mortal.worker.kill()
    mortal.worker.start()
    result = await mortal.client.wait(key, ticket.message_id, timeout=TIMEOUT)

    assert (result.state, result.text, result.turn) == (TurnState.COMPLETED, "whole", 1)
    assert len(provider.requests) == 4
    assert [step.attempts for step in await watching.step_rows(mortal, key)] == [2, 2]
    assert [(m.role, m.text) for m in await watching.transcript(mortal, key)] == [
        ("user", "hello"),
        ("assistant", ""),
        ("tool", "looked"),
        ("assistant", "whole"),
    ]
    assert (await mortal.client.status(key)).pending == 0
    again = await mortal.client.ask(key, "hello", message_id=ticket.message_id, timeout=TIMEOUT)
    assert again == result
    assert len(provider.requests) == 4


async def test_an_answer_that_was_committed_before_the_kill_is_not_paid_again(
    provider: OpenAIServer, tmp_path: Path
) -> None:
    """Temporal is frozen while the answer commits, so its worker cannot report it before it is
    killed. The next attempt finds the answer, with its tool calls, and goes on from there."""
    async with (
        running_server(tmp_path / "temporal") as temporal,
        _stack(tmp_path / "home", temporal.address, provider) as stack,
    ):
        assert temporal.child is not None
        key = fresh_key("committed")
        provider.script(calls(("1", "add", '{"a": 1}'), wait=1), says("two"))
        ticket = await stack.client.send(key, "one and one")
        await provider.arrived()
        os.kill(temporal.child.pid, signal.SIGSTOP)
        try:
            await watching.event(stack, key, EventKind.STEP_COMPLETED)
            stack.worker.kill()
        finally:
            os.kill(temporal.child.pid, signal.SIGCONT)
        stack.worker.start()
        result = await stack.client.wait(key, ticket.message_id, timeout=TIMEOUT)

        assert (result.state, result.text) == (TurnState.COMPLETED, "two")
        assert len(provider.requests) == 2
        steps = await watching.step_rows(stack, key)
        assert [(step.attempts, step.reused) for step in steps] == [(1, 1), (1, 0)]
        assert await watching.attempts(stack, key, "take_step") == [2, 1]
        assert await watching.results(stack, key) == ["2"]
        assert (result.usage.input_tokens, result.usage.output_tokens) == (22, 14)


async def test_killed_between_its_effect_and_its_report_a_tool_is_not_silently_repeated(
    mortal: Stack, provider: OpenAIServer
) -> None:
    """Promise 14: what must not come twice is of unknown outcome, and so is what the next worker
    does not know any more; what may come twice is run again, under the same idempotency key."""
    effects = {"pay": 1, "put": 2, "look": 2, "retire": 1}
    keys = {tool: fresh_key(tool) for tool in effects}
    provider.default = lambda request: (
        says("done")
        if request.messages[-1]["role"] == "tool"
        else calls(("1", request.messages[-1]["content"], "{}"))
    )
    tickets = {tool: await mortal.client.send(key, tool) for tool, key in keys.items()}

    def taken(tool: str) -> list[str]:
        return user_tools.effects(watching.workspace(mortal, keys[tool]))

    async def all_taken() -> bool:
        return all(map(taken, effects))

    await until(all_taken)
    mortal.worker.kill()
    config = mortal.home / "perdure.toml"
    config.write_text(config.read_text().replace('"tests.support.user_tools:retire", ', ""))
    for key in keys.values():
        _open_gate(mortal, key)
    mortal.worker.start()
    results = {
        tool: await mortal.client.wait(keys[tool], ticket.message_id, timeout=TIMEOUT)
        for tool, ticket in tickets.items()
    }

    assert {tool: len(taken(tool)) for tool in effects} == effects
    assert all(len(set(taken(tool))) == 1 for tool in effects)
    assert {tool: result.tools[0].status for tool, result in results.items()} == {
        "pay": ToolStatus.UNKNOWN,
        "put": ToolStatus.OK,
        "look": ToolStatus.OK,
        "retire": ToolStatus.UNKNOWN,
    }
    assert all(result.text == "done" for result in results.values())
    read_by_the_model = [
        message["content"]
        for request in provider.requests
        for message in request.messages
        if message["role"] == "tool"
    ]
    for tool in ("pay", "retire"):
        (told,) = await watching.results(mortal, keys[tool])
        assert f"Unknown outcome: {tool}" in told
        assert "may or may not have taken effect" in told
        assert told in read_by_the_model

    # Of a call that was never begun it is known that there is no such tool.
    again = await mortal.client.ask(keys["retire"], "retire", timeout=TIMEOUT)
    assert again.tools[0].status is ToolStatus.ERROR
    assert "There is no tool named 'retire'" in (await watching.results(mortal, keys["retire"]))[-1]


async def test_killed_after_an_edit_and_before_its_seal_the_edit_is_of_unknown_outcome(
    mortal: Stack, provider: OpenAIServer
) -> None:
    """Promise 14, for a local activity. Held up by the locks of folder and store, the worker is
    killed exactly between the two."""
    key = fresh_key("edit")
    provider.script(calls(("1", "write", '{"path": "sum", "content": "1"}')), says("written"))
    await mortal.client.ask(key, "write", timeout=TIMEOUT)
    file = watching.workspace(mortal, key) / "sum"
    # Not idempotent: run twice, it would find its own result and edit it again.
    edit = json.dumps({"path": "sum", "old": "1", "new": "1 + 0"})
    provider.script(calls(("2", "edit", edit)), says("done"))

    folder = os.open(file.parent, os.O_RDONLY)
    store = sqlite3.connect(mortal.home / "perdure.db", isolation_level=None)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        ticket = await mortal.client.send(key, "edit")

        async def claimed() -> bool:
            return [claim.tool for claim in await watching.claim_rows(mortal, key)] == [
                "write",
                "edit",
            ]

        await until(claimed)
        store.execute("BEGIN IMMEDIATE")
        fcntl.flock(folder, fcntl.LOCK_UN)

        async def edited() -> bool:
            return file.read_text() == "1 + 0"

        await until(edited)
        mortal.worker.kill()
        store.execute("ROLLBACK")
    finally:
        store.close()
        os.close(folder)
    mortal.worker.start()
    result = await mortal.client.wait(key, ticket.message_id, timeout=TIMEOUT)

    assert file.read_text() == "1 + 0"
    assert (result.state, result.text) == (TurnState.COMPLETED, "done")
    assert [(tool.name, tool.status) for tool in result.tools] == [("edit", ToolStatus.UNKNOWN)]
    assert "Unknown outcome: edit" in (await watching.results(mortal, key))[-1]


async def test_a_deploy_in_the_middle_of_a_turn_is_nobodys_stop(
    mortal: Stack, provider: OpenAIServer
) -> None:
    """Promise 11: SIGTERM during model calls and tools; what ends within the grace period counts,
    the rest goes over to the next worker, and every answer comes."""
    calling, ending, reading, paying = (
        fresh_key(name) for name in ("calling", "ending", "reading", "paying")
    )
    provider.script(says("half of it", ending="hang"))
    tickets = {calling: await mortal.client.send(calling, "call")}
    await provider.arrived(1)
    provider.script(says("just in time", wait=2))
    tickets[ending] = await mortal.client.send(ending, "end")
    await provider.arrived(2)
    for key, tool in ((reading, "look"), (paying, "pay")):
        provider.script(calls(("1", tool, "{}")))
        tickets[key] = await mortal.client.send(key, tool)
        await watching.event(mortal, key, EventKind.TOOL_STARTED)

    code = await asyncio.to_thread(mortal.worker.terminate)
    _open_gate(mortal, reading)
    _open_gate(mortal, paying)
    mortal.worker.start()
    results = {
        key: await mortal.client.wait(key, ticket.message_id, timeout=TIMEOUT)
        for key, ticket in tickets.items()
    }

    assert code == 0
    assert {result.state for result in results.values()} == {TurnState.COMPLETED}
    assert results[calling].text == "fine"
    assert results[ending].text == "just in time"
    assert [step.attempts for step in await watching.step_rows(mortal, calling)] == [2]
    assert [step.attempts for step in await watching.step_rows(mortal, ending)] == [1]
    assert [tool.status for tool in results[reading].tools] == [ToolStatus.OK]
    assert [tool.status for tool in results[paying].tools] == [ToolStatus.UNKNOWN]
    assert len(user_tools.effects(watching.workspace(mortal, paying))) == 1
    for key in tickets:
        texts = [message.text for message in await watching.transcript(mortal, key)]
        assert "interrupted" not in " ".join(texts)
        assert await watching.events(mortal, key, EventKind.TURN_INTERRUPTED) == []
        await until(lambda key=key: watching.at_rest(mortal, key))
    given_over = [
        entry.activity_task_started_event_attributes.last_failure.application_failure_info.type
        for key in (calling, reading, paying)
        for entry in await watching.history(mortal, key)
        if entry.activity_task_started_event_attributes.attempt == 2
    ]
    assert given_over == ["worker_shutdown"] * 3


async def test_a_worker_that_was_frozen_and_wakes_gives_one_answer(
    mortal: Stack, provider: OpenAIServer
) -> None:
    """Given up for dead, it wakes with an answer in hand, beside the next attempt: whichever
    commits first is the answer, and only that one is kept and counted."""
    key = fresh_key("frozen")
    provider.script(says("the first", wait=1), says("the second"))
    ticket = await mortal.client.send(key, "hello")
    await provider.arrived()
    worker = mortal.worker.process
    assert worker is not None
    worker.send_signal(signal.SIGSTOP)

    async def given_up() -> bool:
        return any(activity.attempt == 2 for activity in await watching.pending(mortal, key))

    await until(given_up)
    worker.send_signal(signal.SIGCONT)
    result = await mortal.client.wait(key, ticket.message_id, timeout=TIMEOUT)
    # What it had begun is done when it ends.
    assert await asyncio.to_thread(mortal.worker.terminate) == 0

    assert result.state is TurnState.COMPLETED
    assert result.text in ("the first", "the second")
    assert len(provider.requests) <= 2
    texts = [message.text for message in await watching.transcript(mortal, key)]
    assert texts == ["hello", result.text]
    assert (await mortal.client.status(key)).tokens.input == 11
    mortal.worker.start()
    assert (await mortal.client.ask(key, "and now?", timeout=TIMEOUT)).text == "fine"
