"""Processes die under traffic, again and again: nothing is lost, nothing is done twice.

Workers and the Temporal server get SIGKILL. Each test goes through `SessionClient`; what was sent
is compared with what the store holds, message by message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.local import TemporalServer, running_server
from perdure.domain.messages import Role
from perdure.domain.states import TurnState
from perdure.store.tables import messages, steps
from tests.support import watching
from tests.support.accounting import all_ended, assert_answered_once, said, turns_of
from tests.support.sending import send_surely
from tests.support.stack import Stack, fresh_key, running_stack, until

TIMEOUT = 240


class Progress:
    """How many turns have ended in some sessions; what the killers go by, instead of the clock."""

    def __init__(self, stack: Stack, keys: Sequence[str]) -> None:
        self._stack = stack
        self._keys = keys

    async def ended(self) -> int:
        turns = [turn for key in self._keys for turn in await turns_of(self._stack, key)]
        return sum(turn.state != TurnState.RUNNING for turn in turns)

    async def reach(self, count: int) -> None:
        async def reached() -> bool:
            return await self.ended() >= count

        await until(reached, TIMEOUT)


def script(message_id: str, number: int) -> str:
    """A plain turn, or one with a tool in the middle."""
    if number % 4 == 3:
        return f'/write {{"path": "{message_id}", "content": "x"}}\n/say {message_id}'
    return f"/say {message_id}"


async def send_in_turn(stack: Stack, key: str, name: str, count: int) -> list[str]:
    """One sender, who does not go on before a message is confirmed, or `one` before it is
    answered, so that there is traffic until the end."""
    ids = [f"{name}.{number}" for number in range(count)]
    for number, message_id in enumerate(ids):
        await send_surely(stack, key, script(message_id, number), message_id)
        if name == "one":
            answer = await stack.client.wait(key, message_id, timeout=TIMEOUT)
            assert answer.text == message_id
    return ids


async def assert_nothing_lost_or_doubled(stack: Stack, key: str, ids: Sequence[str]) -> None:
    turns = await turns_of(stack, key)
    assert sorted(turn.message_id for turn in turns) == sorted(ids)
    assert {turn.state for turn in turns} == {TurnState.COMPLETED}
    assert [turn.text for turn in turns] == [turn.message_id for turn in turns]
    # One user message and one answer a turn, and a tool's call and result where it has one.
    transcript = await said(stack, key)
    for turn in turns:
        roles = [entry.role for entry in transcript if entry.turn == turn.turn]
        tool = [Role.ASSISTANT, Role.TOOL] if int(turn.message_id.split(".")[1]) % 4 == 3 else []
        assert roles == [Role.USER, *tool, Role.ASSISTANT], turn
    # A step that was begun is committed, and each committed step has its message.
    made = await watching.rows(stack, steps, key)
    assert all(row.outcome is not None for row in made)
    answers = [row for row in await watching.rows(stack, messages, key) if row.role == "assistant"]
    assert [row.message_seq for row in made] == [row.seq for row in answers]
    assert all(row.status == "ok" for row in await watching.claim_rows(stack, key))
    for name in {message_id.split(".")[0] for message_id in ids}:
        mine = [turn.message_id for turn in turns if turn.message_id.split(".")[0] == name]
        assert mine == sorted(mine, key=lambda message_id: int(message_id.split(".")[1]))


@pytest.mark.timeout(400)
async def test_a_worker_killed_again_and_again_loses_and_doubles_nothing(
    temporal_address: str, tmp_path: Path
) -> None:
    async with running_stack(tmp_path, temporal_address) as stack:
        keys = [fresh_key("killed-a"), fresh_key("killed-b")]
        progress = Progress(stack, keys)
        sending = [
            asyncio.create_task(send_in_turn(stack, key, name, 12))
            for key in keys
            for name in ("one", "two", "three")
        ]
        for kill in range(3):
            await progress.reach(3 + 17 * kill)
            stack.worker.kill()
            stack.worker.start()
        sent = await asyncio.gather(*sending)
        for index, key in enumerate(keys):
            ids = [message_id for part in sent[3 * index : 3 * index + 3] for message_id in part]
            await all_ended(stack, key, len(ids), TIMEOUT)
            await assert_nothing_lost_or_doubled(stack, key, ids)


@pytest.mark.timeout(400)
async def test_two_workers_killed_in_turn_lose_and_double_nothing(
    temporal_address: str, tmp_path: Path
) -> None:
    """While one dies the other works: attempts of both may overlap."""
    async with running_stack(tmp_path, temporal_address) as stack:
        second = type(stack.worker)(stack.home, stack.environ)
        second.start()
        try:
            key = fresh_key("pair")
            progress = Progress(stack, [key])
            sending = [
                asyncio.create_task(send_in_turn(stack, key, name, 12)) for name in ("one", "two")
            ]
            for kill in range(2):
                await progress.reach(3 + 8 * kill)
                dying = (stack.worker, second)[kill % 2]
                dying.kill()
                dying.start()
            ids = [message_id for part in await asyncio.gather(*sending) for message_id in part]
            await all_ended(stack, key, len(ids), TIMEOUT)
            await assert_nothing_lost_or_doubled(stack, key, ids)
        finally:
            second.kill()


@pytest.mark.timeout(400)
async def test_a_temporal_server_killed_while_messages_are_sent_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    """It comes back on its file; clients send again with the same ids until they are confirmed."""
    async with (
        running_server(tmp_path / "temporal") as server,
        running_stack(tmp_path / "home", server.address) as stack,
    ):
        keys = [fresh_key("server-a"), fresh_key("server-b")]
        progress = Progress(stack, keys)
        sending = [
            asyncio.create_task(send_in_turn(stack, key, name, 12))
            for key in keys
            for name in ("one", "two")
        ]
        for kill in range(2):
            await progress.reach(5 + 15 * kill)
            await restart(server)
        sent = await asyncio.gather(*sending)
        for index, key in enumerate(keys):
            ids = [message_id for part in sent[2 * index : 2 * index + 2] for message_id in part]
            await all_ended(stack, key, len(ids), TIMEOUT)
            await assert_nothing_lost_or_doubled(stack, key, ids)


async def restart(server: TemporalServer) -> None:
    await server.kill()
    await server.start()


@pytest.mark.timeout(400)
async def test_everything_killed_at_once_comes_back_and_answers(tmp_path: Path) -> None:
    """Worker and server together, with a turn under way and messages waiting."""
    async with (
        running_server(tmp_path / "temporal") as server,
        running_stack(tmp_path / "home", server.address) as stack,
    ):
        key = fresh_key("everything")
        await stack.client.send(key, "/sleep 2\n/say slow", message_id="slow")
        for number in range(5):
            await stack.client.send(key, f"/say {number}", message_id=f"waits.{number}")
        asking = asyncio.create_task(stack.client.wait(key, "waits.4", timeout=TIMEOUT))
        stack.worker.kill()
        await restart(server)
        stack.worker.start()
        assert (await asking).text == "4"
        ids = ["slow", *(f"waits.{number}" for number in range(5))]
        await assert_answered_once(stack, key, ids)
        assert [turn.message_id for turn in await turns_of(stack, key)] == ids
