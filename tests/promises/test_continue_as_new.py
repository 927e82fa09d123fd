"""A session's run is replaced by the next, under traffic, and nobody outside notices.

Two triggers: our own count of turns, and the server's hint, forced early on a server of its own.
Each test goes through `SessionClient`, a real Temporal server and a real worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure.domain.envelopes import Envelope
from perdure.domain.errors import Conflict, NotFound
from perdure.domain.messages import Role
from perdure.domain.states import EventKind, TurnState
from perdure.store.tables import steps
from tests.support import watching
from tests.support.accounting import (
    all_ended,
    assert_answered_once,
    count,
    runs_of,
    said,
    turns_of,
)
from tests.support.sending import deliver, send_surely
from tests.support.stack import Stack, fresh_key, running_stack, server

TIMEOUT = 120

#: Turns of one run on the stack `short`. The server delays a run that follows one which lasted for
#: less than a second, so no test uses many more runs than it needs.
TURNS = 5
#: Events after which the server of `hinted` suggests to continue as new.
EVENTS = 60


@asynccontextmanager
async def stack_with(home: Path, address: str, turns: int) -> AsyncIterator[Stack]:
    config = f"[limits]\nturns_per_run = {turns}\n"
    async with running_stack(home, address, config=config) as running:
        yield running


@pytest.fixture(scope="module")
async def short(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    """A stack whose runs last for five turns."""
    async with stack_with(tmp_path_factory.mktemp("short"), temporal_address, TURNS) as running:
        yield running


@pytest.fixture(scope="module")
async def hinted(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    """A stack on a server that suggests to continue as new after 60 events."""
    home = tmp_path_factory.mktemp("hinted")
    hint = f"limit.historyCount.suggestContinueAsNew={EVENTS}"
    async with (
        server(home / "temporal", ["--dynamic-config-value", hint]) as address,
        stack_with(home / "home", address, 1_000) as running,
    ):
        yield running


@pytest.fixture(params=["short", "hinted"])
def either(request: pytest.FixtureRequest, short: Stack, hinted: Stack) -> Stack:
    return short if request.param == "short" else hinted


async def hammer(stack: Stack, key: str, senders: int, each: int) -> list[str]:
    """Send from many sides at once, by update and by signal; returns the ids."""

    async def sender(name: int) -> list[str]:
        ids = [f"{name}.{number}" for number in range(each)]
        for number, message_id in enumerate(ids):
            if number % 3 == 2:
                await announce(stack, key, f"/say {message_id}", message_id)
            else:
                await send_surely(stack, key, f"/say {message_id}", message_id)
        return ids

    sent = await asyncio.gather(*(sender(name) for name in range(senders)))
    return [message_id for ids in sent for message_id in ids]


async def announce(stack: Stack, key: str, text: str, message_id: str) -> None:
    await deliver(stack, key, text, Envelope(message_id=message_id))


async def assert_in_order_per_sender(stack: Stack, key: str) -> None:
    taken = [turn.message_id for turn in await turns_of(stack, key) if "." in turn.message_id]
    by_sender: dict[str, list[int]] = {}
    for message_id in taken:
        name, number = message_id.split(".")
        by_sender.setdefault(name, []).append(int(number))
    assert all(numbers == sorted(numbers) for numbers in by_sender.values())


async def test_a_message_admitted_during_continue_as_new_is_answered_once(either: Stack) -> None:
    """Promise 4, by both triggers and both ways of admission."""
    stack, key = either, fresh_key("hammer")
    await stack.client.ask(key, "/say start", message_id="start", timeout=TIMEOUT)
    ids = await hammer(stack, key, senders=6, each=8)
    await all_ended(stack, key, len(ids) + 1)

    await assert_answered_once(stack, key, ["start", *ids])
    await assert_in_order_per_sender(stack, key)
    runs = await runs_of(stack, key)
    assert len(runs) > 5
    # The counts agree in Temporal too: no step was begun that no message asked for.
    assert sum(count(run, "ACTIVITY_TASK_SCHEDULED") for run in runs) == len(ids) + 1


async def test_the_same_id_runs_once_across_continue_as_new(short: Stack) -> None:
    """Promise 5: by update and by signal, and another text under it is a conflict."""
    key = fresh_key("same-id")
    first = await short.client.ask(key, "/say first", message_id="first", timeout=TIMEOUT)
    for number in range(2 * TURNS):
        await short.client.ask(key, f"/say {number}", message_id=f"m{number}", timeout=TIMEOUT)
    assert len(await runs_of(short, key)) > 1

    assert (await short.client.send(key, "/say first", message_id="first")).duplicate
    again = await short.client.ask(key, "/say first", message_id="first", timeout=TIMEOUT)
    assert again == first
    await announce(short, key, "/say first", "first")
    with pytest.raises(Conflict):
        await short.client.send(key, "/say other", message_id="first")

    await short.client.ask(key, "/say end", message_id="end", timeout=TIMEOUT)
    ids = ["first", *(f"m{number}" for number in range(2 * TURNS)), "end"]
    await assert_answered_once(short, key, ids)


async def test_steady_traffic_never_prevents_continue_as_new(short: Stack) -> None:
    """Promise 6: the inbox is never empty, and every run is as short as it should be."""
    key = fresh_key("steady")
    await short.client.send(key, "/sleep 1\n/say start", message_id="start")
    ids = await hammer(short, key, senders=4, each=10)
    await all_ended(short, key, len(ids) + 1)

    runs = await runs_of(short, key)
    turns = [count(run, "ACTIVITY_TASK_COMPLETED") for run in runs]
    assert max(turns) == TURNS
    assert turns[:-1] == [TURNS] * (len(runs) - 1)
    await assert_answered_once(short, key, ["start", *ids])


async def test_a_turn_goes_on_in_the_next_run(hinted: Stack) -> None:
    """A turn longer than a run is one turn, and pays for each of its steps once."""
    key = fresh_key("long-turn")
    script = "\n---\n".join(["/ls {}"] * 40)
    result = await hinted.client.ask(key, f"{script}\n/say through", timeout=TIMEOUT)

    assert (result.turn, result.steps, result.text) == (1, 41, "through")
    assert len(await runs_of(hinted, key)) > 3
    rows = await watching.rows(hinted, steps, key)
    assert [(row.step, row.attempts, row.reused) for row in rows] == [
        (number, 1, 0) for number in range(1, 42)
    ]
    assert len(await watching.claim_rows(hinted, key)) == 40


async def test_an_interrupt_reaches_a_turn_that_is_moving_to_its_next_run(hinted: Stack) -> None:
    key = fresh_key("moving")
    for number in range(1, 6):
        script = "\n---\n".join(["/ls {}"] * 60)
        ticket = await hinted.client.send(key, f"{script}\n/say never")
        # Each time at another point of the run.
        await reached(hinted, key, number, 3 + 3 * number)
        assert await hinted.client.interrupt(key) == number
        stopped = await hinted.client.wait(key, ticket.message_id, timeout=TIMEOUT)
        assert stopped.state is TurnState.INTERRUPTED
        assert stopped.steps < 60


async def test_a_reset_reaches_a_turn_that_is_moving_to_its_next_run(hinted: Stack) -> None:
    key = fresh_key("moving-reset")
    for number in range(1, 6):
        script = "\n---\n".join(["/ls {}"] * 60)
        ticket = await hinted.client.send(key, f"{script}\n/say never")
        waits = await hinted.client.send(key, "/say dropped")
        await reached(hinted, key, number, 3 + 3 * number)
        assert await hinted.client.reset(key) == 1
        stopped = await hinted.client.wait(key, ticket.message_id, timeout=TIMEOUT)
        assert stopped.state is TurnState.INTERRUPTED
        with pytest.raises(NotFound):
            await hinted.client.wait(key, waits.message_id)


async def reached(stack: Stack, key: str, turn: int, step: int) -> None:
    """Wait until a turn takes a step."""
    async with asyncio.timeout(TIMEOUT):
        async for event in stack.client.events(key):
            if (event.kind, event.turn, event.step) == (EventKind.STEP_STARTED, turn, step):
                return


@pytest.mark.timeout(900)
async def test_2500_messages_from_20_senders_are_each_answered_once_and_in_order(
    temporal_address: str, tmp_path: Path
) -> None:
    """And promise 5 once more: long after, the id of the first still names it."""
    key = fresh_key("crowd")

    async def sender(stack: Stack, name: int) -> list[str]:
        ids = [f"{name}.{number}" for number in range(125)]
        for message_id in ids:
            await send_surely(stack, key, f"/say {message_id}", message_id)
        return ids

    async with stack_with(tmp_path, temporal_address, 50) as stack:
        await stack.client.ask(key, "/say first", message_id="first", timeout=TIMEOUT)
        sent = await asyncio.gather(*(sender(stack, name) for name in range(20)))
        ids = ["first", *(message_id for part in sent for message_id in part)]
        await all_ended(stack, key, len(ids), timeout=600)
        assert len(await runs_of(stack, key)) >= 50

        assert (await stack.client.send(key, "/say first", message_id="first")).duplicate
        await announce(stack, key, "/say first", "first")
        with pytest.raises(Conflict):
            await stack.client.send(key, "/say another", message_id="first")
        await stack.client.ask(key, "/say last", message_id="last", timeout=TIMEOUT)

        await assert_answered_once(stack, key, [*ids, "last"])
        await assert_in_order_per_sender(stack, key)
        answers = [entry.text for entry in await said(stack, key) if entry.role == Role.ASSISTANT]
        assert answers == [turn.message_id for turn in await turns_of(stack, key)]
