"""A real gateway process for tests, and a reader of Server-Sent Events.

Invariant: a gateway is called over TCP, as any client would; nothing of it runs in the test.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tests.support.forked import Forked
from tests.support.stack import ROOT, Stack

_LISTENING = re.compile(r"listening on (https?://[^\s\"]+)")


class GatewayProcess:
    """`python -m gateway.http` on a home and any free port, its output in a file.

    Args:
        stack: whose home and environment it runs with.
        name: tells its log from those of others on the home.
        setup: Python code to run before it, as for a shorter heartbeat.
        arguments: more of its command line.
    """

    def __init__(
        self, stack: Stack, name: str = "gateway", setup: str = "", arguments: tuple[str, ...] = ()
    ) -> None:
        self._environ = os.environ | stack.environ
        self._log = stack.home / f"{name}.log"
        self._setup = f"{setup}\nfrom gateway.http.__main__ import main\nmain()" if setup else ""
        self._arguments = ("--home", str(stack.home), "--port", "0", *arguments)
        self.process: subprocess.Popen[bytes] | Forked
        self.url = ""

    async def start(self) -> None:
        """Start it, and return when it listens."""
        self._spawn()
        async with asyncio.timeout(60):
            while not (found := _LISTENING.search(self.log)):
                assert self.process.poll() is None, self.log
                await asyncio.sleep(0.05)
        self.url = found[1]

    def _spawn(self) -> None:
        self._log.write_bytes(b"")
        if not self._setup:
            self.process = Forked("gateway.http", self._arguments, self._environ, self._log)
            return
        argv = (sys.executable, "-c", self._setup, *self._arguments)
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                argv, cwd=ROOT, env=self._environ, stdout=log, stderr=log
            )

    @property
    def log(self) -> str:
        """What it has written so far."""
        return self._log.read_text()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    async def terminate(self, timeout: float = 30) -> int:
        """SIGTERM, and its exit code once it has stopped."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self.process.wait, timeout)

    def client(self, **options: Any) -> httpx2.AsyncClient:
        """An HTTP client for it."""
        return httpx2.AsyncClient(base_url=self.url, timeout=120, **options)


@asynccontextmanager
async def running_gateway(
    stack: Stack, name: str = "gateway", setup: str = "", arguments: tuple[str, ...] = ()
) -> AsyncIterator[GatewayProcess]:
    """A gateway that listens, and is gone at the end."""
    gateway = GatewayProcess(stack, name, setup, arguments)
    try:
        await gateway.start()
        yield gateway
    finally:
        gateway.kill()


@dataclass
class Frame:
    """One dispatched event of a stream, or one comment or retry on its own."""

    id: int | None = None
    event: str = "message"
    data: Any = None
    comment: str | None = None
    other: dict[str, str] = field(default_factory=dict)


def frames(text: str) -> Iterator[Frame]:
    """The complete frames of a stream; what is cut off at the end does not count."""
    for block in text.split("\n\n")[:-1]:
        frame = Frame()
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            match name:
                case "id":
                    frame.id = int(value)
                case "event":
                    frame.event = value
                case "data":
                    frame.data = json.loads(value)
                case "":
                    frame.comment = value
                case _:
                    frame.other[name] = value
        yield frame


def ids(text: str) -> list[int]:
    """The ids of a stream's events, in order."""
    return [frame.id for frame in frames(text) if frame.id is not None]


async def listen(
    client: httpx2.AsyncClient, key: str, until: str, after: int | None = None
) -> list[Frame]:
    """Follow a session until an event of the kind `until` has come; all frames so far."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    received, found = "", []
    async with client.stream("GET", f"/v1/sessions/{key}/events", headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        async for text in response.aiter_text():
            whole, cut, received = (received + text).rpartition("\n\n")
            found += (new := list(frames(whole + cut)))
            if any(frame.event == until for frame in new):
                return found
    raise AssertionError(f"the stream ended without {until}: {found[-1]}")


class Curl:
    """`curl -N` on an event stream, its output in a file."""

    def __init__(self, url: str, out: Path, *arguments: str) -> None:
        self._out = out
        self.process = subprocess.Popen(
            ["curl", "-sN", "--max-time", "120", "-o", str(out), *arguments, url]
        )

    @property
    def text(self) -> str:
        """What has come so far."""
        return self._out.read_text() if self._out.exists() else ""

    def stop(self) -> str:
        """Hang up; all that came."""
        self.process.kill()
        self.process.wait()
        return self.text
