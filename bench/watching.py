"""What a turn costs that is traced, or sealed, beside one that is neither.

Run with `python -m bench.watching [--quick]`. Three workers, each on a home and a queue of its own,
are driven in alternating blocks, so that a slow minute hits all; what counts is the CPU time of
worker and client, which other load changes least. Spans go to a sink that takes everything.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.measure import keep
from gateway.client import SessionClient
from gateway.local import running_server
from perdure.config import load_settings
from perdure.encryption import new_key

#: Turns of a block, and before the first one is measured.
BLOCK = 20
WARM = 10
ROOT = Path(__file__).parent.parent
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass
class Mode:
    """A worker and a client with settings of their own, and what they have used."""

    client: SessionClient
    worker: subprocess.Popen[bytes]
    key: str
    turns: int = 0
    worker_cpu: float = 0.0
    client_cpu: float = 0.0
    wall: float = 0.0

    async def block(self, turns: int) -> None:
        """Take some turns, and count what they cost."""
        worker, client, wall = _cpu(self.worker.pid), time.process_time(), time.perf_counter()
        for _ in range(turns):
            await self.client.ask(self.key, "/say hello", timeout=60)
        self.turns += turns
        self.worker_cpu += _cpu(self.worker.pid) - worker
        self.client_cpu += time.process_time() - client
        self.wall += time.perf_counter() - wall

    @property
    def told(self) -> dict[str, float]:
        """Milliseconds a turn."""
        used = {"worker cpu": self.worker_cpu, "client cpu": self.client_cpu, "clock": self.wall}
        return {name: round(1_000 * seconds / self.turns, 2) for name, seconds in used.items()}


def _cpu(pid: int) -> float:
    """User and system seconds of a process, from /proc/PID/stat."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


@contextmanager
def _sink() -> Iterator[str]:
    """The address of a collector that forgets."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing to tell."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _start(home: Path, config: str, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    home.mkdir()
    (home / "perdure.toml").write_text(config)
    argv = [sys.executable, "-m", "worker", "--home", str(home)]
    with (home / "worker.log").open("ab") as log:
        return subprocess.Popen(argv, cwd=ROOT, env=os.environ | environ, stdout=log, stderr=log)


@asynccontextmanager
async def _mode(name: str, home: Path, address: str, config: str) -> AsyncIterator[Mode]:
    environ = {"PERDURE_TEMPORAL_ADDRESS": address, "PERDURE_TEMPORAL_QUEUE": name}
    worker = await asyncio.to_thread(_start, home, config, environ)
    try:
        async with SessionClient.connect(load_settings(home, environ)) as client:
            yield Mode(client, worker, f"default:{name}-{time.time_ns()}")
    finally:
        worker.kill()
        worker.wait()


async def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the blocks")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder, _sink() as sink:
        key = Path(folder) / "k1"
        key.write_text(new_key())
        configs = {
            "plain": "",
            "traced": f'[observability]\notlp_endpoint = "{sink}"\n',
            "sealed": (
                f'[temporal.encryption]\nactive = "k1"\n[temporal.encryption.keys]\nk1 = "{key}"\n'
            ),
        }
        async with running_server(Path(folder)) as server, AsyncExitStack() as stack:
            modes = {
                name: await stack.enter_async_context(
                    _mode(name, Path(folder) / name, server.address, config)
                )
                for name, config in configs.items()
            }
            for mode in modes.values():
                for _ in range(WARM):
                    await mode.client.ask(mode.key, "/say hello", timeout=60)
            for _ in range(2 if quick else 10):
                for mode in modes.values():
                    await mode.block(BLOCK)
            results = {name: mode.told for name, mode in modes.items()}
    table = Table("a turn, in ms", *results["plain"])
    for name, told in results.items():
        table.add_row(name, *map(str, told.values()))
    Console().print(table)
    if not quick:
        print(keep("watching", results))


if __name__ == "__main__":
    asyncio.run(main())
