"""A gateway process: bound to the loopback, served until told to stop, stopped in order.

Invariant: where others than this machine could ask, it asks for a key; and a
SIGTERM ends it with exit code 0 within seconds, whoever is connected.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from ipaddress import ip_address

import uvicorn
from fastapi import FastAPI

from gateway.client import SessionClient
from gateway.http.app import create_app, gate_of
from perdure.config import GatewaySettings, Settings
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
        host: the address to listen on.
        port: 0 is any free one.

    Raises:
        InvalidArgument: for a host that is no address, or one that others reach while nobody has a
            key, or for TLS files that cannot be used.
        Conflict: when the port is taken.
        Unavailable: when Temporal cannot be reached.
    """
    if host is not None:
        gateway = settings.gateway.model_copy(update={"host": host})
        settings = settings.model_copy(update={"gateway": gateway})
    wanted = settings.gateway
    address = _address(wanted)
    async with SessionClient.connect(settings) as client:
        await _check_keys(client)
        with _listen(address, (wanted.port if port is None else port) or 0) as listener:
            stopping = asyncio.Event()
            name = f"[{address}]" if ":" in address else address
            hosts = {"localhost", "127.0.0.1", "[::1]", name, *wanted.hosts}
            gate = gate_of(client, keys=wanted.needs_keys)
            app = create_app(client, hosts=hosts, stopping=stopping, gate=gate)
            server = _Server(_config(app, wanted), stopping)
            scheme = "http" if wanted.tls_certificate is None else "https"
            _log.info("listening on %s://%s:%d", scheme, name, listener.getsockname()[1])
            try:
                await server.serve(sockets=[listener])
            finally:
                gate.close()


def _config(app: FastAPI, wanted: GatewaySettings) -> uvicorn.Config:
    if (wanted.tls_certificate is None) != (wanted.tls_key is None):
        raise InvalidArgument(
            "Of gateway.tls_certificate and gateway.tls_key one is set.", "Set both, or none."
        )
    config = uvicorn.Config(
        app,
        lifespan="off",
        ws="none",
        log_config=None,
        # It would have whole URLs.
        access_log=False,
        server_header=False,
        proxy_headers=bool(wanted.trusted_proxies),
        forwarded_allow_ips=wanted.trusted_proxies,
        timeout_graceful_shutdown=GRACE,
        ssl_certfile=wanted.tls_certificate,
        ssl_keyfile=wanted.tls_key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise InvalidArgument(
            f"TLS cannot be spoken with {wanted.tls_certificate} and {wanted.tls_key}: {error}.",
            "Name PEM files that this process may read: the chain, and the key to it.",
        ) from error
    return config


def _address(wanted: GatewaySettings) -> str:
    """The address to listen on.

    Raises:
        InvalidArgument: when it is none, or nobody could say what it is called.
    """
    if wanted.host == "localhost":
        return "127.0.0.1"
    try:
        every = ip_address(wanted.host).is_unspecified
    except ValueError:
        raise InvalidArgument(
            f"The gateway cannot listen on {wanted.host!r}.",
            "gateway.host is localhost or an IP address; gateway.hosts has the names.",
        ) from None
    if every and not wanted.hosts:
        raise InvalidArgument(
            f"The gateway would listen on every address ({wanted.host}), under no name.",
            "Set gateway.hosts to the names and addresses that clients call it by.",
        )
    return wanted.host


async def _check_keys(client: SessionClient) -> None:
    """Refuse to be reached by others while nobody could prove who they are."""
    wanted = client.settings.gateway
    if wanted.is_reachable and not (await client.keys.list(limit=1)).total:
        raise InvalidArgument(
            f"Others would reach the gateway at {wanted.host}, and there is no API key yet.",
            "Make one first: perdure keys create NAME --scope chat --scope read.",
        )


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
