"""The gateway as a process: where it listens, how it ends, what it holds when it is killed."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from gateway.local import running_server
from tests.support.gateway import Curl, frames, running_gateway
from tests.support.processes import eventually
from tests.support.stack import ROOT, Stack, fresh_key, running_stack, until


async def run(stack: Stack, *arguments: str, **environ: str) -> tuple[int | None, str]:
    """Run a gateway that is expected to end by itself; its exit code and all it wrote."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.http", "--home", str(stack.home), *arguments),
        cwd=ROOT,
        env=os.environ | stack.environ | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        told, _ = await asyncio.wait_for(process.communicate(), 60)
    except TimeoutError:
        process.kill()
        raise
    return process.returncode, told.decode()


async def test_a_stop_ends_streams_and_waits_and_exits_in_order(
    stack: Stack, tmp_path: Path
) -> None:
    key = fresh_key("stop")
    async with running_gateway(stack, "stop") as gateway, gateway.client() as http:
        path = f"/v1/sessions/{key}"
        await http.post(f"{path}/messages", json={"text": "/say x", "wait": True})
        curls = [Curl(f"{gateway.url}{path}/events", tmp_path / f"{n}") for n in range(5)]
        body = {"text": "/sleep 60", "wait": True, "timeout": 3600}
        headers = {"Idempotency-Key": "long"}
        waits = asyncio.create_task(http.post(f"{path}/messages", json=body, headers=headers))
        await eventually(lambda: all('"turn":2' in curl.text for curl in curls))
        looks = asyncio.create_task(http.get(f"{path}/turns/long?timeout=3600"))
        closes = asyncio.create_task(http.delete(path))
        # Nothing tells from outside that a request waits; half a second is plenty to arrive.
        await asyncio.sleep(0.5)
        assert await gateway.terminate() == 0
        for curl in curls:
            assert curl.process.wait() == 0
            *_, end = frames(curl.text)
            assert (end.event, end.data["reason"]) == ("end", "stopping")
        assert (await waits).json()["status"] == "delivered_no_reply"
        assert (await looks).json()["state"] == "running"
        assert (await closes).json()["code"] == "unavailable"
        assert "Traceback" not in gateway.log
    await stack.client.interrupt(key)


async def test_a_message_is_answered_once_over_a_killed_gateway(stack: Stack) -> None:
    key = fresh_key("killed")
    path = f"/v1/sessions/{key}/messages"
    body = {"text": "/sleep 2\n---\n/say once", "wait": True}
    headers = {"Idempotency-Key": "m"}
    async with running_gateway(stack, "first") as gateway, gateway.client() as http:
        waits = asyncio.create_task(http.post(path, json=body, headers=headers))
        await until(partial(stack.client.store.sessions.get, key))
        gateway.kill()
        await asyncio.gather(waits, return_exceptions=True)
    async with running_gateway(stack, "second") as gateway, gateway.client() as http:
        answer = (await http.post(path, json=body, headers=headers)).json()
        assert (answer["turn"], answer["text"]) == (1, "once")
        assert (await http.get(path)).json()["total"] == 2


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("0.0.0.0", "under no name"),
        ("::", "under no name"),
        ("192.0.2.7", "there is no API key yet"),
        ("example.com", "cannot listen on 'example.com'"),
    ],
)
async def test_it_refuses_to_listen_where_others_could_reach_it_and_nobody_has_a_key(
    stack: Stack, host: str, why: str
) -> None:
    code, told = await run(stack, "--host", host, "--port", "0")
    assert code == 1
    assert why in told
    assert "Traceback" not in told


async def test_the_settings_cannot_make_it_reachable_either(stack: Stack) -> None:
    code, told = await run(stack, "--port", "0", PERDURE_GATEWAY_HOST="0.0.0.0")
    assert (code, "Traceback" in told) == (1, False)


async def test_a_taken_port_is_named(stack: Stack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        code, told = await run(stack, "--port", str(port))
    assert code == 1
    assert f"port {port}" in told
    assert "Traceback" not in told


async def test_without_temporal_it_says_how_to_start_one(stack: Stack) -> None:
    code, told = await run(stack, "--port", "0", PERDURE_TEMPORAL_ADDRESS="127.0.0.1:1")
    assert code == 1
    assert "Temporal does not answer at 127.0.0.1:1" in told
    assert "Traceback" not in told


@pytest.mark.parametrize("host", ["localhost", "::1"])
async def test_it_listens_on_any_loopback_address(stack: Stack, host: str) -> None:
    try:
        socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError:
        pytest.skip(f"this machine has no {host}")
    arguments = ("--host", host)
    async with (
        running_gateway(stack, "loopback", arguments=arguments) as gateway,
        gateway.client() as http,
    ):
        assert (await http.get("/healthz")).json() == {"status": "alive"}


async def test_readiness_follows_temporal_and_life_does_not(tmp_path: Path) -> None:
    async with (
        running_server(tmp_path / "temporal") as server,
        running_stack(tmp_path / "home", server.address) as stack,
        running_gateway(
            stack, setup="from gateway.http import parts; parts.PATIENCE = 2"
        ) as gateway,
        gateway.client() as http,
    ):
        assert (await http.get("/readyz")).json() == {"status": "ready"}
        await server.kill()
        away = await http.get("/readyz")
        assert (away.status_code, away.json()["code"]) == (503, "unavailable")
        assert "Temporal" in away.json()["detail"]
        assert (await http.get("/healthz")).status_code == 200
        headers = {"Idempotency-Key": "m"}
        body = {"text": "/say back", "wait": True}
        path = f"/v1/sessions/{fresh_key('away')}/messages"
        lost = await http.post(path, json=body, headers=headers)
        assert (lost.status_code, lost.json()["code"]) == (503, "unavailable")
        assert "The message m is not confirmed" in lost.json()["detail"]
        assert lost.headers["retry-after"] == "1"
        await server.start()

        async def answered() -> bool:
            return (await http.post(path, json=body, headers=headers)).status_code == 200

        # The server has hosts and queues to find again; who sends again gets there.
        await until(answered)
        assert (await http.get("/readyz")).status_code == 200
        history = (await http.get(path)).json()
        assert [message["text"] for message in history["messages"]] == ["/say back", "back"]
