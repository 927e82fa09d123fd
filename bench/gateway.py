"""What HTTP adds: requests beside the same calls without it, and events to many listeners.

Run with `python -m bench.gateway [--quick]`. One tuned server, one worker, one gateway, and a plain
FastAPI application as the ceiling; kinds take turns in blocks, so that a slow minute hits them all.
The client runs beside them on the same cores and takes its share.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2

from bench.measure import p50, p95, report, times_of
from gateway.client import SessionClient
from gateway.local import running_server
from gateway.local.ports import free_ports
from perdure.config import load_settings

ROOT = Path(__file__).parent.parent
BLOCKS = 6
#: Clients at once, where requests a second are counted.
AT_ONCE = 20
LISTENERS = (1, 50, 500)
#: Of a turn without tools: turn.started, step.started, step.completed, turn.completed.
EVENTS_PER_TURN = 4

Action = Callable[[], Awaitable[object]]


class Bench:
    """A client with HTTP and one without, and what was measured so far."""

    def __init__(
        self, client: SessionClient, http: httpx2.AsyncClient, hello: str, quick: bool
    ) -> None:
        self._client = client
        self._http = http
        self._hello = hello
        self._repeats = 5 if quick else 25
        self.results: dict[str, Any] = {}

    async def requests(self) -> None:
        """One request after the other, each kind beside what it stands on."""
        now = time.time_ns()
        key, sent = f"default:asked-{now}", f"default:sent-{now}"
        for number in range(20):
            await self._client.ask(key, f"/say {number}", timeout=60)
        at, silent = f"/v1/sessions/{key}", f"/v1/sessions/{sent}"
        kinds: dict[str, Action] = {
            "hello of plain FastAPI": lambda: self._get(self._hello),
            "status": lambda: self._get(at),
            "status without HTTP": lambda: self._client.status(key),
            "history, 20 messages": lambda: self._get(f"{at}/messages"),
            "history without HTTP": lambda: self._client.history(key),
            "send": lambda: self._post(silent, wait=False),
            "send without HTTP": lambda: self._client.send(sent, "/say hello"),
            "send and wait": lambda: self._post(at, wait=True),
            "send and wait without HTTP": lambda: self._client.ask(key, "/say hello", timeout=60),
        }
        times: dict[str, list[float]] = {name: [] for name in kinds}
        for action in kinds.values():
            await times_of(action, 3)
        for _ in range(BLOCKS):
            for name, action in kinds.items():
                times[name] += await times_of(action, self._repeats)
        for name, measured in times.items():
            self.results[f"{name}, ms p50"] = round(p50(measured), 1)
            self.results[f"{name}, ms p95"] = round(p95(measured), 1)

    async def rates(self) -> None:
        """Requests a second of so many clients at once."""
        now = time.time_ns()
        keys = [f"default:rate-{number}-{now}" for number in range(AT_ONCE)]
        for key in keys:
            await self._client.ask(key, "/say hello", timeout=60)
        kinds: dict[str, tuple[int, Callable[[str], Awaitable[object]]]] = {
            "hello of plain FastAPI": (20, lambda _: self._get(self._hello)),
            "status": (20, lambda key: self._get(f"/v1/sessions/{key}")),
            "history": (20, lambda key: self._get(f"/v1/sessions/{key}/messages")),
            "send and wait": (4, lambda key: self._post(f"/v1/sessions/{key}", wait=True)),
            "send": (4, lambda key: self._post(f"/v1/sessions/{key}", wait=False)),
        }
        for name, (each, action) in kinds.items():
            each *= max(1, self._repeats // 5)

            async def ask(key: str, action: Any = action, each: int = each) -> None:
                for _ in range(each):
                    await action(key)

            started = time.perf_counter()
            await asyncio.gather(*map(ask, keys))
            rate = AT_ONCE * each / (time.perf_counter() - started)
            self.results[f"{name}/s, {AT_ONCE} clients"] = round(rate)

    async def listeners(self) -> None:
        """From an event to all who listen to its session."""
        for count in LISTENERS:
            key = f"default:heard-{count}-{time.time_ns()}"
            await self._client.ask(key, "/say hello", timeout=60)
            turns = max(5, self._repeats)
            url = f"{self._http.base_url}/v1/sessions/{key}/events?after=newest"
            started = time.perf_counter()
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bench.listeners", url, str(count)),
                *(str(EVENTS_PER_TURN), str(turns * EVENTS_PER_TURN)),
                cwd=ROOT,
                stdout=asyncio.subprocess.PIPE,
                limit=2**26,
            )
            assert process.stdout is not None
            await process.stdout.readline()
            connected = time.perf_counter() - started
            await self._client.ask(key, "/say warm", timeout=60)
            await process.stdout.readline()
            for number in range(turns):
                await self._client.ask(key, f"/say {number}", timeout=60)
                # One burst after the other, as in a conversation; not as fast as one can talk.
                await asyncio.sleep(0.2)
            heard = json.loads(await process.stdout.readline())
            await process.wait()
            name = f"{count} listener{'s' if count > 1 else ''}"
            self.results[f"{name} to connect, their process with them, s"] = round(connected, 1)
            self.results[f"event to {name}, ms p50"] = round(p50(heard["times"]), 1)
            self.results[f"event to {name}, ms p95"] = round(p95(heard["times"]), 1)
            self.results[f"event to {name}, ms at most"] = round(max(heard["times"]), 1)
            self.results[f"{name} heard the same, each event once"] = heard["same"]

    async def _get(self, path: str) -> None:
        (await self._http.get(path)).raise_for_status()

    async def _post(self, path: str, *, wait: bool) -> None:
        body = {"text": "/say hello", "wait": wait}
        (await self._http.post(f"{path}/messages", json=body)).raise_for_status()


async def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the repeats")
    parser.add_argument("--only", choices=["requests", "rates", "listeners"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        home = Path(folder)
        async with running_server(home) as server:
            settings = load_settings(home, {"PERDURE_TEMPORAL_ADDRESS": server.address})
            port, other = free_ports(2)
            commands = [
                [sys.executable, "-m", "worker", "--home", folder],
                [sys.executable, "-m", "gateway.http", "--home", folder, "--port", str(port)],
                [sys.executable, "-m", "bench.bare_http", str(other)],
            ]
            environ = {"PERDURE_TEMPORAL_ADDRESS": server.address}
            processes = [_start(command, home, environ) for command in commands]
            limits = httpx2.Limits(max_connections=AT_ONCE * 2)
            url, hello = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{other}/hello"
            try:
                async with (
                    SessionClient.connect(settings) as client,
                    httpx2.AsyncClient(base_url=url, timeout=120, limits=limits) as http,
                ):
                    for address in (f"{url}/readyz", hello):
                        await _answers(http, address)
                    bench = Bench(client, http, hello, arguments.quick)
                    for part in ("requests", "rates", "listeners"):
                        if arguments.only in (None, part):
                            await getattr(bench, part)()
            finally:
                for process in processes:
                    process.kill()
                    process.wait()
    report("gateway", bench.results, quick=arguments.quick, partly=arguments.only is not None)


async def _answers(http: httpx2.AsyncClient, url: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                if (await http.get(url)).is_success:
                    return
            except httpx2.TransportError:
                pass
            await asyncio.sleep(0.1)


def _start(command: list[str], home: Path, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    with (home / f"{command[2]}.log").open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, env=os.environ | environ, stdout=log, stderr=log)


if __name__ == "__main__":
    asyncio.run(main())
