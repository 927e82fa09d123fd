"""`perdure up`: everything that runs on one home, started, watched and stopped together.

Invariant: the file in the home folder names what runs now, and only while it can be used; at the
end the workers go first, so that they can hand over their work, and the server last.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from temporalio.client import Client

from gateway.local.children import Command
from gateway.local.commands import (
    gateway_argv,
    local_environment,
    own_environment,
    worker_argv,
    worker_ports,
)
from gateway.local.home import (
    HomeLock,
    Pids,
    StackInfo,
    remove_stack_file,
    write_stack_file,
)
from gateway.local.ports import LOOPBACK, free_ports, is_free
from gateway.local.readiness import accepts, dial, until, worker_polls
from gateway.local.relics import put_away
from gateway.local.supervisor import TROUBLE, Supervisor
from gateway.local.temporal import STOP_GRACE, TemporalServer
from perdure.config import Settings
from perdure.domain.errors import Conflict, PerdureError, Unavailable

#: Seconds a worker gets to hand over what is under way; a little more than it takes for itself.
WORKER_GRACE = 15.0
#: Seconds for workers and gateway to be ready; the budget is ten, a loaded machine needs more.
_START_TIMEOUT = 60.0

_log = logging.getLogger(__name__)


class Stack:
    """The processes of one home: `async with Stack(settings) as stack` runs them.

    Args:
        settings: with `temporal.address` set, that cluster is used and no server is started.
        workers: how many worker processes.
        gateway: whether to run the HTTP gateway.
        port: of the Temporal server; None is a free one.
        ui_port: of its web UI; None is a free one.
        server_args: more arguments for the Temporal server.
        worker: another command line for the workers.
        tell: called with what a person at the terminal should know.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        workers: int = 1,
        gateway: bool = False,
        port: int | None = None,
        ui_port: int | None = None,
        server_args: Sequence[str] = (),
        worker: Sequence[str] | None = None,
        tell: Callable[[str], None] = _log.warning,
    ) -> None:
        self._settings = settings
        self._home = settings.home.absolute()
        self._worker_argv = tuple(worker or worker_argv(self._home))
        self._worker_count = workers
        self._with_gateway = gateway
        self._tell = tell
        self._server: TemporalServer | None = None
        if settings.temporal.address is None:
            self._server = TemporalServer(
                self._home,
                namespace=settings.temporal.namespace,
                port=port,
                ui_port=ui_port,
                extra_args=server_args,
            )
        self._lock: HomeLock | None = None
        self._temporal: Supervisor | None = None
        self._workers: list[Supervisor] = []
        self._gateway: Supervisor | None = None
        self._gateway_port = 0
        self._ready = False

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            # Also on an interrupt: what was started so far must not outlive us.
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def info(self) -> StackInfo:
        """Where it can be reached, and what runs now."""
        running = [worker.pid for worker in self._workers]
        return StackInfo(
            temporal=self._address,
            ui=self._server.ui if self._server else None,
            gateway=self._gateway_url if self._gateway else None,
            home=str(self._home),
            pids=Pids(
                temporal=self._temporal.pid if self._temporal else None,
                workers=[pid for pid in running if pid is not None],
                gateway=self._gateway.pid if self._gateway else None,
            ),
        )

    async def start(self) -> None:
        """Start everything, and return when it can be used. Whatever comes of it, `stop` later.

        Raises:
            Conflict: when a stack runs on this home, or a port it must have is taken.
            Unavailable: when Temporal or a worker does not come up; with the end of its log.
        """
        self._lock = HomeLock.take(self._home)
        put_away(self._home)
        if self._server is not None:
            await self._server.start()
            self._temporal = self._supervise(self._server.command, STOP_GRACE)
            await self._temporal.start(self._server.child)
        client = await self._client()
        for number in range(1, self._worker_count + 1):
            ports = worker_ports(self._settings.observability, number)
            command = self._command(f"worker-{number}", self._worker_argv, ports)
            self._workers.append(self._supervise(command, WORKER_GRACE))
        if self._with_gateway:
            self._gateway_port = self._choose_gateway_port()
            command = self._command("gateway", gateway_argv(self._home, self._gateway_port))
            self._gateway = self._supervise(command, WORKER_GRACE)
        for supervisor in self._ours:
            await supervisor.start()
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                await until(lambda: self._all_ready(client))
        except TimeoutError:
            raise await self._not_ready(client) from None
        self._ready = True
        self._publish()

    async def stop(self) -> None:
        """Stop everything in order. Does nothing twice."""
        self._ready = False
        await asyncio.gather(*(supervisor.stop() for supervisor in self._ours))
        if self._temporal is not None:
            await self._temporal.stop()
        elif self._server is not None:
            await self._server.stop()
        if self._lock is not None:
            remove_stack_file(self._home)
            self._lock.release()
            self._lock = None

    def kill(self) -> None:
        """Take the grace from a `stop` under way: everything still running is killed."""
        for supervisor in (*self._ours, *([self._temporal] if self._temporal else [])):
            supervisor.kill()

    @property
    def _ours(self) -> list[Supervisor]:
        return [*self._workers, *([self._gateway] if self._gateway else [])]

    @property
    def _address(self) -> str:
        return self._server.address if self._server else str(self._settings.temporal.address)

    @property
    def _gateway_host(self) -> str:
        # What listens everywhere is reached from here by the loopback.
        host = self._settings.gateway.host
        return LOOPBACK if host in ("0.0.0.0", "::") else host

    @property
    def _gateway_url(self) -> str:
        host = self._gateway_host
        scheme = "http" if self._settings.gateway.tls_certificate is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self._gateway_port}"

    def _choose_gateway_port(self) -> int:
        port = self._settings.gateway.port or free_ports(1)[0]
        # Asked before: whoever holds the port would seem to be our gateway.
        if not is_free(port, self._gateway_host):
            raise Conflict(
                f"Port {port} is taken, so the gateway cannot start.",
                "Stop what listens there, or set another gateway.port.",
            )
        return port

    async def _client(self) -> Client:
        namespace = self._settings.temporal.namespace
        client = await dial(self._address, namespace, profile=self._server is None)
        if client is None:
            raise Unavailable(
                f"Temporal does not answer at {self._address}.",
                "Is the address right, and the cluster up? TLS and API key come from TEMPORAL_*.",
            )
        return client

    def _command(
        self, name: str, argv: Sequence[str], more: Mapping[str, str] | None = None
    ) -> Command:
        environ = local_environment() if self._server else own_environment()
        environ |= {
            **(more or {}),
            "PERDURE_TEMPORAL_ADDRESS": self._address,
            "PERDURE_TEMPORAL_NAMESPACE": self._settings.temporal.namespace,
            "PERDURE_TEMPORAL_QUEUE": self._settings.temporal.queue,
        }
        return Command(name, tuple(argv), self._home / "logs" / f"{name}.log", environ)

    def _supervise(self, command: Command, grace: float) -> Supervisor:
        return Supervisor(command, grace=grace, tell=self._tell, changed=self._publish)

    def _publish(self) -> None:
        if self._ready:
            write_stack_file(self._home, self.info)

    async def _all_ready(self, client: Client) -> bool:
        for supervisor in self._ours:
            if supervisor.ends >= TROUBLE:
                raise self._gave_up(supervisor, "does not stay up")
        return not await self._waiting_for(client)

    async def _waiting_for(self, client: Client) -> list[Supervisor]:
        queue = self._settings.temporal.queue
        waiting = [
            worker
            for worker in self._workers
            if worker.pid is None or not await worker_polls(client, queue, worker.pid)
        ]
        gateway = self._gateway
        if gateway is not None and not (
            gateway.pid is not None and await accepts(self._gateway_host, self._gateway_port)
        ):
            waiting.append(gateway)
        return waiting

    async def _not_ready(self, client: Client) -> PerdureError:
        for supervisor in await self._waiting_for(client):
            return self._gave_up(supervisor, f"is not ready after {_START_TIMEOUT:g} s")
        return Unavailable(f"The stack was not ready within {_START_TIMEOUT:g} s.", "Try again.")

    def _gave_up(self, supervisor: Supervisor, how: str) -> Unavailable:
        command = supervisor.command
        # The supervisor has told the rest of the log; an exception's last line says it best.
        return Unavailable(
            f"{command.name} {how}: {supervisor.last_words or 'it has not written a word'}.",
            f"See {command.log}.",
        )
