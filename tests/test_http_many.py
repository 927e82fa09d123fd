"""Events to many, to browsers, and through many gateways: nothing missed, nothing twice."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from pathlib import Path

import pytest

from gateway.local.ports import free_ports
from perdure.domain.states import EventKind
from tests.support.chromium import find_chromium, page_at
from tests.support.gateway import GatewayProcess, listen, running_gateway
from tests.support.stack import ROOT, Stack, fresh_key, until

#: The bench has five hundred; these are as many as the descriptors of any machine allow.
MANY = 200


(FETCHING,) = re.findall(
    r"<!-- run: browser -->\n```js\n(.*?)```",
    (ROOT / "docs" / "gateways.md").read_text("utf-8"),
    re.DOTALL,
)


async def told(stack: Stack, key: str) -> list[int]:
    """The ids of all events of a session, from the store."""
    return [event.id for event in await stack.client.store.outbox.page(key)]


class Socket:
    """A listener that is no more than a socket."""

    def __init__(self) -> None:
        self.text = ""

    async def listen(self, gateway: GatewayProcess, key: str, after: int) -> None:
        """Listen until the stream ends or the connection is lost."""
        host, port = gateway.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        path = f"/v1/sessions/{key}/events"
        writer.write(
            f"GET {path} HTTP/1.0\r\nHost: {host}\r\nLast-Event-ID: {after}\r\n\r\n".encode()
        )
        with suppress(ConnectionError):
            while chunk := await reader.read(65_536):
                self.text += chunk.decode()
        writer.close()

    @property
    def heard(self) -> list[int]:
        """The ids of what has come as a whole."""
        whole = self.text.rpartition("\n\n")[0]
        return [int(number) for number in re.findall(r"^id: (\d+)$", whole, re.MULTILINE)]


async def test_many_listeners_hear_the_same_once_over_two_gateways(stack: Stack) -> None:
    key = fresh_key("many")
    await stack.client.ask(key, "/say one", timeout=60)
    first = [Socket() for _ in range(MANY)]
    async with running_gateway(stack, "many-first") as gateway, asyncio.TaskGroup() as group:
        for socket in first:
            group.create_task(socket.listen(gateway, key, 0))
        await stack.client.ask(key, "/say two", timeout=60)
        expected = await told(stack, key)

        async def all_heard() -> bool:
            return all(socket.heard == expected for socket in first)

        await until(all_heard)
        await stack.client.ask(key, "/say three", timeout=60)
        # Whatever of it has come until now, each goes on behind what it saw last.
        gateway.process.kill()
    second = [Socket() for _ in first]
    async with running_gateway(stack, "many-second") as gateway, asyncio.TaskGroup() as group:
        for old, new in zip(first, second, strict=True):
            group.create_task(new.listen(gateway, key, old.heard[-1]))
        await stack.client.ask(key, "/say four", timeout=60)
        expected = await told(stack, key)

        async def together() -> bool:
            both = zip(first, second, strict=True)
            return all(old.heard + new.heard == expected for old, new in both)

        await until(together)
        await gateway.terminate()
    assert all('"reason":"stopping"' in socket.text for socket in second)


async def test_a_message_is_sent_through_one_gateway_and_answered_through_another(
    stack: Stack,
) -> None:
    key = fresh_key("beside")
    path = f"/v1/sessions/{key}"
    async with (
        running_gateway(stack, "beside-one") as one,
        running_gateway(stack, "beside-two") as two,
        one.client() as first,
        two.client() as second,
    ):
        sent = await first.post(
            f"{path}/messages",
            json={"text": "/sleep 1\n---\n/say through another"},
            headers={"Idempotency-Key": "m"},
        )
        assert sent.status_code == 202
        hears = asyncio.create_task(listen(second, key, "turn.completed"))
        waits = asyncio.create_task(second.get(f"{path}/turns/m", params={"timeout": 60}))
        one.kill()
        assert (await waits).json()["text"] == "through another"
        heard = [frame.id for frame in await hears if frame.id is not None]
        assert heard == (await told(stack, key))[: len(heard)]
        again = await second.post(
            f"{path}/messages",
            json={"text": "/sleep 1\n---\n/say through another", "wait": True},
            headers={"Idempotency-Key": "m"},
        )
        assert (again.json()["turn"], again.json()["text"]) == (1, "through another")


@pytest.mark.skipif(
    find_chromium() is None,
    reason="THERE IS NO CHROMIUM ON THIS MACHINE: that EventSource comes back by itself over a "
    "killed gateway is NOT tested. Install it: apt-get install chromium",
)
async def test_an_event_source_in_a_browser_comes_back_by_itself(
    stack: Stack, tmp_path: Path
) -> None:
    key = fresh_key("browser")
    await stack.client.ask(key, "/say one", timeout=60)
    (port,) = free_ports(1)
    gateway = GatewayProcess(stack, "browser", arguments=("--port", str(port)))
    await gateway.start()
    try:
        async with page_at(f"{gateway.url}/healthz", tmp_path) as page:

            async def up_to_date() -> bool:
                expected = await told(stack, key)
                return bool(await page.run("[seen, fetched]") == [expected, expected])

            await page.run(f"""
                {FETCHING}
                var seen = [], opened = 0, fetched = [];
                follow("/v1/sessions/{key}/events", "any", "0", event => fetched.push(event.id));
                var source = new EventSource("/v1/sessions/{key}/events");
                source.onopen = () => opened++;
                for (const kind of {json.dumps(list(EventKind))})
                    source.addEventListener(kind, event => seen.push(Number(event.lastEventId)));
            """)
            await until(up_to_date)
            gateway.kill()
            await stack.client.ask(key, "/say two", timeout=60)
            await gateway.start()
            await until(up_to_date)
            await gateway.terminate()
            await stack.client.ask(key, "/say three", timeout=60)
            await gateway.start()
            await stack.client.ask(key, "/say four", timeout=60)
            await until(up_to_date)
            assert await page.run("opened") >= 3
            assert len(await page.run("seen")) == len(set(await page.run("seen")))
    finally:
        gateway.kill()
