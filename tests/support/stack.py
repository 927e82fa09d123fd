"""A real Perdure for tests: a Temporal server, worker processes that can be killed, a client.

Invariant: nothing outlives the test that started it, and no port is fixed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.client import SessionClient
from gateway.local import running_server
from perdure.config import Settings, load_settings
from tests.support.forked import Forked

ROOT = Path(__file__).parent.parent.parent


class WorkerProcess:
    """`python -m worker` on a home, its output in a file."""

    def __init__(self, home: Path, environ: dict[str, str]) -> None:
        self._home = home
        self._environ = environ
        self.process: Forked | None = None

    def start(self) -> None:
        """Start it; it takes tasks as soon as it polls."""
        self.process = Forked(
            "worker",
            ("--home", str(self._home)),
            os.environ | self._environ,
            self._home / "worker.log",
        )

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def terminate(self, timeout: float = 30) -> int:
        """SIGTERM, and its exit code once it has drained."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)


class Stack:
    """One home: its settings, its worker and its client."""

    def __init__(self, home: Path, environ: dict[str, str]) -> None:
        self.home = home
        self.environ = environ
        self.settings: Settings = load_settings(home, environ)
        self.worker = WorkerProcess(home, environ)
        self.client: SessionClient


def _lay_out(home: Path, config: str) -> None:
    home.mkdir(parents=True, exist_ok=True)
    (home / "perdure.toml").write_text(config)


@asynccontextmanager
async def running_stack(
    home: Path, address: str, *, config: str = "", environ: dict[str, str] | None = None
) -> AsyncIterator[Stack]:
    """A worker and a client on the server at `address`, with `config` as perdure.toml.

    Every stack has a task queue of its own, so many share a server. Session keys must be unique
    on a server: use `fresh_key`.
    """
    await asyncio.to_thread(_lay_out, home, config)
    stack = Stack(
        home,
        {
            "PERDURE_TEMPORAL_ADDRESS": address,
            "PERDURE_TEMPORAL_QUEUE": f"test-{time.time_ns()}",
            **(environ or {}),
        },
    )
    stack.worker.start()
    try:
        async with SessionClient.connect(stack.settings) as stack.client:
            yield stack
    finally:
        stack.worker.kill()


def fresh_key(name: str) -> str:
    """A session key that no other test uses."""
    return f"default:{name}-{time.time_ns()}"


@asynccontextmanager
async def server(home: Path, extra_args: Sequence[str] = ()) -> AsyncIterator[str]:
    """A Temporal server of its own; its address."""
    async with running_server(home, extra_args=extra_args) as running:
        yield running.address


async def until(condition, timeout: float = 60) -> None:  # type: ignore[no-untyped-def]
    """Wait until an async condition holds; fails loudly instead of hanging."""
    async with asyncio.timeout(timeout):
        while not await condition():  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.05)
