"""A whole Perdure on PostgreSQL: two workers and two clients share a store, and workers die.

One stack for the module: sessions are told apart by their keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from gateway.client import SessionClient
from perdure.domain.labels import Label
from perdure.domain.states import EventKind, TurnState
from perdure.search import parse
from perdure.store.audit import verify
from perdure.store.readers import Reader
from tests.support.in_process import perdure_here as perdure
from tests.support.postgres import Cluster
from tests.support.stack import Stack, WorkerProcess, fresh_key, running_stack

TIMEOUT = 90


@dataclass
class Shared:
    """A stack, with a second worker and a second client on the same store."""

    stack: Stack
    second_worker: WorkerProcess
    second_client: SessionClient

    @property
    def clients(self) -> tuple[SessionClient, SessionClient]:
        return self.stack.client, self.second_client


@pytest.fixture(scope="module")
async def shared(
    cluster: Cluster, temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Shared]:
    home = tmp_path_factory.mktemp("postgresql") / "home"
    environ = {"PERDURE_STORE_URL": await cluster.fresh(migrated=False)}
    async with AsyncExitStack() as exits:
        stack = await exits.enter_async_context(
            running_stack(home, temporal_address, environ=environ)
        )
        second = WorkerProcess(home, stack.environ)
        second.start()
        exits.callback(second.kill)
        client = await exits.enter_async_context(SessionClient.connect(stack.settings))
        yield Shared(stack, second, client)


async def test_turns_run_on_both_workers_and_both_clients_hear_of_them(shared: Shared) -> None:
    keys = [fresh_key(f"turns{number}") for number in range(4)]

    async def talk(key: str, client: SessionClient) -> list[str]:
        return [
            (await client.ask(key, f"/say {key} {number}", timeout=TIMEOUT)).text
            for number in range(3)
        ]

    said = await asyncio.gather(
        *(talk(key, shared.clients[number % 2]) for number, key in enumerate(keys))
    )
    assert said == [[f"{key} {number}" for number in range(3)] for key in keys]
    # What the one client asked for, the other one reads, searches and hears of.
    for key in keys:
        ended = 0
        async for event in shared.second_client.events(key):
            ended += event.kind is EventKind.TURN_COMPLETED
            if ended == 3:
                break
    found = await shared.second_client.store.search.messages(
        parse(f'"{keys[0]} 2"'), Reader.gateway(Label.RESTRICTED), session_key=keys[0]
    )
    assert sorted(hit.role for hit in found.hits) == ["assistant", "user"]


async def test_workers_that_are_killed_lose_and_double_no_message(shared: Shared) -> None:
    key = fresh_key("killed")
    first, second = shared.clients
    text = "/sleep 3\n---\n/say after all"
    ticket = await first.send(key, text)
    async for event in second.events(key):
        if event.kind is EventKind.TURN_STARTED:
            break
    for worker in (shared.stack.worker, shared.second_worker):
        worker.kill()
    shared.stack.worker.start()
    shared.second_worker.start()
    result = await second.wait(key, ticket.message_id, timeout=TIMEOUT)
    assert (result.state, result.text, result.turn) == (TurnState.COMPLETED, "after all", 1)
    page = await first.store.transcript.page(key, 10, 0)
    assert [message.role for message in page.messages].count("user") == 1
    again = await first.ask(key, text, message_id=ticket.message_id, timeout=TIMEOUT)
    assert again == result


async def test_work_is_handed_to_a_child_and_comes_back(shared: Shared) -> None:
    key = fresh_key("parent")
    task = '/sessions_spawn {"task": "/say done by the child"}\n---\n/say {{1.response}}'
    result = await shared.stack.client.ask(key, task, timeout=TIMEOUT)
    assert (result.state, result.text) == (TurnState.COMPLETED, "done by the child")
    runs = await shared.second_client.store.run_trees.read(key)
    assert [run.end_reason for run in runs.sessions[0].runs] == ["completed"]


async def test_the_chain_of_the_trail_is_whole_whoever_appended(shared: Shared) -> None:
    store = shared.stack.client.store
    report = await verify(store.database, shared.stack.settings.audit_files)
    assert report.valid, report
    assert report.entries > 0
    ran = await perdure("audit", "verify", home=shared.stack.home, environ=shared.stack.environ)
    assert ran.code == 0, ran.out + ran.err


async def test_doctor_and_config_tell_where_the_store_is_and_no_password(shared: Shared) -> None:
    url = shared.stack.environ["PERDURE_STORE_URL"].replace("postgres@", "postgres:hunter2@")
    environ = shared.stack.environ | {"PERDURE_STORE_URL": url}
    for command in (["doctor"], ["config"], ["sessions"]):
        ran = await perdure(*command, home=shared.stack.home, environ=environ)
        assert "hunter2" not in ran.out + ran.err
        if command == ["doctor"]:
            assert "its schema up to date" in ran.out
    wrong = environ | {"PERDURE_STORE_URL": "postgresql://me:hunter2@127.0.0.1:1/none"}
    ran = await perdure("sessions", home=shared.stack.home, environ=wrong)
    assert ran.code != 0
    assert "hunter2" not in ran.out + ran.err
    assert "127.0.0.1:1/none" in ran.out + ran.err
