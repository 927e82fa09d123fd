"""Events over SSE: nothing missed, nothing twice, whoever dies, hangs up or falls behind."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest
from sqlalchemy import insert

from perdure.domain.states import EventKind
from perdure.store.tables import events
from tests.support.gateway import (
    Curl,
    GatewayProcess,
    frames,
    ids,
    listen,
    running_gateway,
)
from tests.support.processes import eventually
from tests.support.stack import Stack, fresh_key, running_stack


@pytest.fixture(scope="module")
async def gateway(stack: Stack) -> AsyncIterator[GatewayProcess]:
    async with running_gateway(stack, "events") as gateway:
        yield gateway


@pytest.fixture(scope="module")
async def http(gateway: GatewayProcess) -> AsyncIterator[httpx2.AsyncClient]:
    async with gateway.client() as client:
        yield client


async def told(stack: Stack, key: str) -> list[int]:
    """The ids of all events of a session, from the store."""
    outbox, found = stack.client.store.outbox, []
    while page := await outbox.page(key, found[-1] if found else 0):
        found += [event.id for event in page]
    return found


async def fill(stack: Stack, key: str, number: int, size: int) -> None:
    """Write `number` events of `size` bytes."""
    rows = [
        {
            "session_key": key,
            "kind": EventKind.STEP_STARTED,
            "payload": {"filler": "x" * size},
            "at": datetime.now(UTC),
        }
        for _ in range(number)
    ]
    await stack.client.store.database.write(lambda c: c.execute(insert(events), rows) and None)


def memory(pid: int) -> int:
    """The resident bytes of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


async def test_curl_resumes_by_the_last_id_over_a_killed_worker(
    temporal_address: str, tmp_path: Path
) -> None:
    key = fresh_key("resume")
    async with (
        running_stack(tmp_path, temporal_address) as stack,
        running_gateway(stack) as gateway,
    ):
        url = f"{gateway.url}/v1/sessions/{key}/events"
        await stack.client.ask(key, "/say one", timeout=60)
        first = Curl(url, tmp_path / "first")
        sent = await stack.client.send(key, "/sleep 3\n---\n/say two")
        await eventually(lambda: "event: step.started" in first.text.partition('turn":2')[2])
        stack.worker.kill()
        seen = ids(first.stop())
        stack.worker.start()
        await stack.client.wait(key, sent.message_id, timeout=120)
        second = Curl(url, tmp_path / "second", "-H", f"Last-Event-ID: {seen[-1]}")
        await eventually(lambda: "turn.completed" in second.text)
        seen += ids(second.stop())
        assert seen == await told(stack, key)
        assert seen == sorted(set(seen))


async def test_fifty_listeners_see_the_same_events_once(
    stack: Stack, http: httpx2.AsyncClient
) -> None:
    key = fresh_key("fifty")
    await stack.client.ask(key, "/say zero", timeout=60)
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=http.base_url, timeout=120, limits=limits) as many:
        listeners = []
        # They come one after the other while the turns run, so each begins somewhere else.
        for number in range(50):
            listeners.append(asyncio.create_task(listen(many, key, "session.closed")))
            if number % 5 == 0:
                await stack.client.ask(key, f"/say {number}", timeout=60)
        await stack.client.close(key)
        heard = await asyncio.gather(*listeners)
    expected = await told(stack, key)
    for each in heard:
        assert [frame.id for frame in each if frame.id is not None] == expected


async def test_a_listener_may_begin_with_what_comes_from_now_on(
    stack: Stack, gateway: GatewayProcess, tmp_path: Path
) -> None:
    key = fresh_key("newest")
    await stack.client.ask(key, "/say before", timeout=60)
    before = await told(stack, key)
    url = f"{gateway.url}/v1/sessions/{key}/events"
    curl = Curl(f"{url}?after=newest", tmp_path / "out")
    await eventually(lambda: "retry: " in curl.text)
    await stack.client.ask(key, "/say after", timeout=60)
    await eventually(lambda: "turn.completed" in curl.text)
    assert [*before, *ids(curl.stop())] == await told(stack, key)


async def test_an_event_tells_its_kind_and_carries_itself(
    stack: Stack, http: httpx2.AsyncClient
) -> None:
    key = fresh_key("frame")
    result = await stack.client.ask(key, "/say x", timeout=60)
    first, *heard = await listen(http, key, "turn.completed")
    assert first.other == {"retry": "1000"}
    page = await stack.client.store.outbox.page(key)
    assert [frame.data for frame in heard] == [event.model_dump(mode="json") for event in page]
    assert [(frame.id, frame.event) for frame in heard] == [(e.id, e.kind) for e in page]
    assert heard[-1].data["payload"]["message_id"] == result.message_id


@pytest.mark.parametrize(
    ("header", "query", "status"),
    [
        ("soon", "", 400),
        ("-1", "", 400),
        ("9" * 30, "", 400),
        ("²", "", 400),
        ("", "?after=1.5", 400),
        ("999999999999", "", 409),
        ("9223372036854775807", "", 409),
    ],
)
async def test_a_cursor_that_cannot_be_is_refused(
    stack: Stack, http: httpx2.AsyncClient, header: str, query: str, status: int
) -> None:
    key = fresh_key("cursor")
    await stack.client.ask(key, "/say x", timeout=60)
    headers = {"Last-Event-ID": header.encode()} if header else {}
    refused = await http.get(f"/v1/sessions/{key}/events{query}", headers=headers)
    assert refused.status_code == status
    assert refused.headers["content-type"] == "application/problem+json"


async def test_an_unknown_session_is_refused_before_the_stream(http: httpx2.AsyncClient) -> None:
    refused = await http.get("/v1/sessions/default:nobody/events")
    assert (refused.status_code, refused.json()["code"]) == (404, "not_found")


async def test_a_silent_stream_is_kept_alive_by_comments(stack: Stack, tmp_path: Path) -> None:
    key = fresh_key("heartbeat")
    await stack.client.ask(key, "/say x", timeout=60)
    setup = "from gateway.http import events; events.HEARTBEAT = 0.1"
    async with running_gateway(stack, "heartbeat", setup) as gateway:
        url = f"{gateway.url}/v1/sessions/{key}/events?after=newest"
        curl = Curl(url, tmp_path / "out")
        await eventually(lambda: curl.text.count(": heartbeat\n\n") >= 3)
        assert ids(curl.stop()) == []


async def test_a_listener_that_hangs_up_ends_its_tail(stack: Stack, tmp_path: Path) -> None:
    key = fresh_key("hangup")
    await stack.client.ask(key, "/say x", timeout=60)
    setup = """
import asyncio, logging
async def report():
    while True:
        tails = [task for task in asyncio.all_tasks() if task.get_name() == "outbox-tail"]
        logging.info("tails: %d", len(tails))
        await asyncio.sleep(0.05)
from gateway.http import server
serve = server.serve
async def watched(*arguments):
    async with asyncio.TaskGroup() as group:
        group.create_task(report())
        await serve(*arguments)
import gateway.http.__main__
gateway.http.__main__.serve = watched
"""
    async with running_gateway(stack, "hangup", setup) as gateway:
        url = f"{gateway.url}/v1/sessions/{key}/events"
        curls = [Curl(url, tmp_path / f"{number}") for number in range(3)]
        await eventually(lambda: all("turn.completed" in curl.text for curl in curls))
        await eventually(lambda: "tails: 1" in gateway.log.splitlines()[-1])
        for curl in curls:
            curl.stop()
        await eventually(lambda: "tails: 0" in gateway.log.splitlines()[-1])


async def slow_listener(gateway: GatewayProcess, key: str) -> socket.socket:
    """A connection that has asked for a session's events and reads nothing."""
    host, port = gateway.url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(60)
    await asyncio.to_thread(connection.connect, (host, int(port)))
    request = f"GET /v1/sessions/{key}/events HTTP/1.0\r\nHost: {host}\r\n\r\n"
    connection.sendall(request.encode())
    return connection


def rest(connection: socket.socket) -> str:
    """Everything that still comes, without the head."""
    with connection, connection.makefile("rb") as file:
        return file.read().decode().partition("\r\n\r\n")[2]


async def test_a_slow_listener_is_told_dropped_and_misses_nothing(
    stack: Stack, http: httpx2.AsyncClient
) -> None:
    key = fresh_key("slow")
    await stack.client.ask(key, "/say x", timeout=60)
    setup = "from gateway.http import events; events.PATIENCE = 0.5"
    async with running_gateway(stack, "slow", setup) as gateway, gateway.client() as client:
        await listen(client, key, "turn.completed")
        before = memory(gateway.process.pid)
        connection = await slow_listener(gateway, key)
        for _ in range(50):
            await fill(stack, key, 100, 10_000)
        await eventually(lambda: "dropping a listener" in gateway.log)
        assert memory(gateway.process.pid) - before < 25_000_000
        heard = await asyncio.to_thread(rest, connection)
        *_, end = frames(heard)
        assert (end.event, end.id, end.data["reason"]) == ("end", None, "slow")
        seen = ids(heard)
        await stack.client.ask(key, "/say y", timeout=60)
        again = await listen(http, key, "turn.completed", after=seen[-1])
        seen += [frame.id for frame in again if frame.id is not None]
        assert seen == await told(stack, key)


async def test_a_listener_that_takes_nothing_at_all_is_cut_off(stack: Stack) -> None:
    key = fresh_key("stuck")
    await stack.client.ask(key, "/say x", timeout=60)
    setup = "from gateway.http import events; events.SEND_TIMEOUT = 0.5"
    async with running_gateway(stack, "stuck", setup) as gateway:
        connection = await slow_listener(gateway, key)
        await fill(stack, key, 1_000, 10_000)
        await eventually(lambda: "took nothing" in gateway.log)
        heard = await asyncio.to_thread(rest, connection)
        assert ids(heard) == (await told(stack, key))[: len(ids(heard))]
        assert "event: end" not in heard
        assert "Traceback" not in gateway.log
