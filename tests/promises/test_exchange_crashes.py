"""Sending while workers die: each message once, and every wait goes on where it was.

The worker is killed with SIGKILL; the stack is each test's own.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.local import running_server
from perdure.domain.states import TurnState
from tests.support import watching
from tests.support.exchanging import (
    CONFIG,
    ended,
    hears,
    send,
    session,
    sessions,
    start,
    told_by,
)
from tests.support.sending import send_surely
from tests.support.stack import Stack, running_stack, until


@pytest.fixture
async def mortal(temporal_address: str, tmp_path: Path) -> AsyncIterator[Stack]:
    async with running_stack(tmp_path / "home", temporal_address, config=CONFIG) as running:
        yield running


async def test_200_sends_while_the_worker_is_killed_twice_are_200_messages(mortal: Stack) -> None:
    a, b = await sessions(mortal, "a", "b")
    scripts = [
        "\n".join(send(b, f"/say {turn * 20 + number}") for number in range(20))
        for turn in range(10)
    ]
    sending = [
        asyncio.create_task(send_surely(mortal, a, f"{script}\n/say done", f"turn-{turn}"))
        for turn, script in enumerate(scripts)
    ]
    for count in (20, 90):
        await until(lambda count=count: _has(mortal, b, count))
        mortal.worker.kill()
        mortal.worker.start()
    await asyncio.gather(*sending)
    for turn in range(10):
        assert (await ended(mortal, a, f"turn-{turn}")).state is TurnState.COMPLETED
    await until(lambda: _answered(mortal, b, 200))

    results = [json.loads(text) for text in await _results(mortal, a)]
    assert [one["sent"] for one in results] == [True] * 200
    told = await _told(mortal, b, a)
    assert Counter(told.values()) == Counter({f"/say {number}": 1 for number in range(200)})
    assert set(told) == {one["message_id"] for one in results}
    assert (await mortal.client.status(b)).pending == 0


async def _told(stack: Stack, key: str, sender: str) -> dict[str, str]:
    rows = await watching.message_rows(stack, key)
    return {row.id: row.text for row in rows if row.from_session == sender}


async def _results(stack: Stack, key: str) -> list[str]:
    return [row.text for row in await watching.message_rows(stack, key) if row.role == "tool"]


async def _has(stack: Stack, key: str, count: int) -> bool:
    return (await stack.client.status(key)).turns >= count


async def _answered(stack: Stack, key: str, count: int) -> bool:
    rows = await watching.turn_rows(stack, key)
    return sum(row.state == TurnState.COMPLETED for row in rows) == count + 1


async def test_a_wait_outlives_the_worker(mortal: Stack) -> None:
    """Killed before the answer, and with the answer there and the sender not told."""
    a, b = await sessions(mortal, "a", "b")
    call = send(b, "/sleep 1\n/say /say back", mode="ping-pong", max_turns=1)
    asked = await start(mortal, a, call, "/say {{1}}")
    await until(lambda: _begun(mortal, b, a))
    mortal.worker.kill()
    mortal.worker.start()
    settled = json.loads((await ended(mortal, a, asked)).text)
    assert (settled["response"], settled["turns_completed"]) == ("/say back", 1)
    assert settled["transcript"][-1]["text"] == "back"
    assert len(await told_by(mortal, b, a)) == len(await told_by(mortal, a, b)) == 1


async def _begun(stack: Stack, key: str, sender: str) -> bool:
    return bool(await told_by(stack, key, sender))


async def test_a_session_that_lost_its_workflow_while_it_waited_is_brought_the_answer(
    mortal: Stack,
) -> None:
    """The turn that asked has failed with its workflow; the answer comes as a late one."""
    a, b = await sessions(mortal, "a", "b")
    asked = await start(mortal, a, send(b, "/sleep 1\n/say /say late", mode="wait"), "/say never")
    await until(lambda: _begun(mortal, b, a))
    await mortal.client.temporal.get_workflow_handle(f"session/{a}").terminate()
    (late,) = await hears(mortal, a, b)
    assert (await ended(mortal, a, late.id)).text == "late"
    assert (await ended(mortal, a, asked)).state is TurnState.FAILED


async def test_a_target_that_lost_its_workflow_ends_a_wait_at_its_deadline(mortal: Stack) -> None:
    """Its turn counts as begun; opened again, it goes on."""
    a, b = await sessions(mortal, "a", "b")
    call = send(b, "/sleep 600\n/say never", mode="wait", timeout_ms=2_000)
    asked = await start(mortal, a, call, "/say {{1.status}}")
    await until(lambda: _begun(mortal, b, a))
    await mortal.client.temporal.get_workflow_handle(f"session/{b}").terminate()
    assert (await ended(mortal, a, asked)).text == "delivered_no_reply"
    assert (await mortal.client.ask(b, "/say on", timeout=60)).text == "on"


async def test_a_wait_goes_on_in_the_next_run(tmp_path: Path) -> None:
    """The server suggests to continue as new while a call waits and messages queue behind it."""
    hint = ["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=40"]
    async with (
        running_server(tmp_path / "temporal", extra_args=hint) as temporal,
        running_stack(tmp_path / "home", temporal.address, config=CONFIG) as stack,
    ):
        a, b = await session(stack, "a"), await session(stack, "b")
        call = send(b, "/sleep 600\n/say never", mode="wait")
        asked = await start(stack, a, call, "/say {{1.status}}")
        await until(lambda: _begun(stack, b, a))
        queued = [await stack.client.send(a, f"/say {number}") for number in range(25)]
        await until(lambda: _rolled(stack, a))
        await stack.client.interrupt(b)
        assert (await ended(stack, a, asked)).text == "failed"
        for number, ticket in enumerate(queued):
            assert (await ended(stack, a, ticket.message_id)).text == str(number)


async def _rolled(stack: Stack, key: str) -> bool:
    query = f"WorkflowId = 'session/{key}'"
    runs = [run async for run in stack.client.temporal.list_workflows(query)]
    return len(runs) > 1
