"""Metrics, where a scraper finds them.

Invariant: what the store says is read when it is asked for, with one cheap query; each process
serves its own counters, so a scraper asks every one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Generator

import uvicorn
from starlette.types import Receive, Scope, Send
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig

from perdure.config.observability import ObservabilitySettings
from perdure.domain.errors import Conflict
from perdure.domain.runs import RunState
from perdure.store import Store
from perdure.telemetry import metrics

_log = logging.getLogger(__name__)

_PATH = "/metrics"
#: Seconds for scrapes under way when the process is to end.
_GRACE = 2


async def scraped(store: Store) -> bytes:
    """All metrics of this process, and how much waits in the store."""
    backlog = await store.backlogs.now()
    metrics.WAITING_MESSAGES.set(backlog.messages)
    metrics.OLDEST_WAITING.set(backlog.oldest_message)
    metrics.FULLEST_INBOX.set(backlog.fullest_inbox)
    metrics.APPROVALS_PENDING.set(backlog.approvals)
    metrics.OLDEST_APPROVAL.set(backlog.oldest_approval)
    for state in RunState:
        if state is not RunState.ENDED:
            metrics.RUNS.labels(state).set(backlog.runs.get(state, 0))
    return metrics.exposition()


def sdk_runtime(settings: ObservabilitySettings) -> Runtime | None:
    """A runtime of Temporal's SDK that serves its own metrics; None where none are asked for.

    Raises:
        Conflict: when the port is taken.
    """
    if settings.temporal_metrics_port is None:
        return None
    address = f"{_bracketed(settings.metrics_host)}:{settings.temporal_metrics_port}"
    try:
        return Runtime(telemetry=TelemetryConfig(metrics=PrometheusConfig(bind_address=address)))
    except ValueError as error:
        raise Conflict(
            f"The metrics of Temporal's SDK cannot be served at {address}: {error}.",
            "Set observability.temporal_metrics_port to another; each worker needs one of its own.",
        ) from error


@contextlib.asynccontextmanager
async def serving(settings: ObservabilitySettings, store: Store) -> AsyncIterator[None]:
    """Serve /metrics during the block, where the settings say.

    Raises:
        Conflict: when the port is taken.
    """
    if settings.metrics_port is None:
        yield
        return
    with _listen(settings.metrics_host, settings.metrics_port) as listener:
        server = _Server(
            uvicorn.Config(
                _Scrapes(store),
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                timeout_graceful_shutdown=_GRACE,
            )
        )
        serve = asyncio.create_task(server.serve(sockets=[listener]), name="metrics")
        host, port = _bracketed(settings.metrics_host), listener.getsockname()[1]
        _log.info("metrics at http://%s:%d%s", host, port, _PATH)
        try:
            yield
        finally:
            server.should_exit = True
            await serve


class _Server(uvicorn.Server):
    """Leaves the process's signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class _Scrapes:
    """The ASGI application of one path."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = scope["path"] == _PATH and scope["method"] == "GET"
        body = await scraped(self._store) if found else b""
        headers = [(b"content-type", metrics.CONTENT_TYPE.encode())]
        status = 200 if found else 404
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise Conflict(
            f"Metrics cannot be served at {host}, port {port}: {error.strerror}.",
            "Set observability.metrics_port to another; each worker needs one of its own.",
        ) from error


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
