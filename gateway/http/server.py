"""A gateway process: bound to the loopback, served until told to stop, stopped in order.

Invariant: it never listens where other machines could reach it, since it has no keys; and a
SIGTERM ends it with exit code 0 within seconds, whoever is connected.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Generator
from contextlib import contextmanager
from ipaddress import ip_address

import uvicorn

from gateway.client import SessionClient
from gateway.http.app import create_app
from perdure.config import Settings
from perdure.domain.errors import Conflict, InvalidArgument

#: Seconds that requests under way get once the gateway is to stop; waits and event streams end at
#: once by themselves.
GRACE = 3
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_log = logging.getLogger(__name__)


async def serve(settings: Settings, host: str | None = None, port: int | None = None) -> None:
    """Serve HTTP until SIGTERM or SIGINT.

    Args:
        settings: which store and cluster to serve; `[gateway]` has the defaults of the others.
        host: `localhost` or a loopback address.
        port: 0 is any free one.

    Raises:
        InvalidArgument: for a host that other machines could reach.
        Conflict: when the port is taken.
        Unavailable: when Temporal cannot be reached.
    """
    address = _loopback(host or settings.gateway.host)
    async with SessionClient.connect(settings) as client:
        with _listen(address, (settings.gateway.port if port is None else port) or 0) as listener:
            stopping = asyncio.Event()
            name = f"[{address}]" if ":" in address else address
            hosts = {"localhost", "127.0.0.1", "[::1]", name}
            server = _Server(
                uvicorn.Config(
                    create_app(client, hosts=hosts, stopping=stopping),
                    lifespan="off",
                    ws="none",
                    log_config=None,
                    access_log=False,
                    server_header=False,
                    proxy_headers=False,
                    timeout_graceful_shutdown=GRACE,
                ),
                stopping,
            )
            _log.info("listening on http://%s:%d", name, listener.getsockname()[1])
            await server.serve(sockets=[listener])


class _Server(uvicorn.Server):
    """A uvicorn server that takes a signal as a wish, and does not send it to itself at the end."""

    def __init__(self, config: uvicorn.Config, stopping: asyncio.Event) -> None:
        super().__init__(config)
        self._stopping = stopping

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        self._stopping.set()
        self.should_exit = True


def _loopback(host: str) -> str:
    """The loopback address that `host` means."""
    if host == "localhost":
        return "127.0.0.1"
    try:
        if ip_address(host).is_loopback:
            return host
    except ValueError:
        pass
    raise InvalidArgument(
        f"The gateway would be reached from other machines at {host}, and asks for no key.",
        "Use 127.0.0.1, and let others in through a proxy or tunnel that knows who they are.",
    )


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        listener = socket.create_server((address, port), family=family, backlog=2048)
    except OSError as error:
        raise Conflict(
            f"The gateway cannot listen on {address}, port {port}: {error.strerror}.",
            "Stop what listens there, or choose another port.",
        ) from error
    # Connections inherit it. Without, a body waits 40 ms for the head to be acknowledged; asyncio
    # sets it only on sockets that were made with a protocol's number.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener
