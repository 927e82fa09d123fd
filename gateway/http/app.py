"""The ASGI application: endpoints, guards and their description, over one `SessionClient`.

Invariant: no request reaches an endpoint past a guard, and /openapi.json says all that can be
answered, refusals included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from fastapi import FastAPI

from gateway.client import SessionClient
from gateway.http import (
    approvals,
    codec,
    contexts,
    events,
    memory,
    messages,
    runs,
    search,
    service,
    sessions,
    tell,
)
from gateway.http.description import describe
from gateway.http.guard import BodyLimit, LoopbackOnly, RawPath
from gateway.http.parts import Gateway
from gateway.http.problems import install

#: What the gateway serves, in the order of the document.
_PARTS = (
    messages,
    tell,
    events,
    sessions,
    search,
    runs,
    approvals,
    contexts,
    memory,
    service,
    codec,
)


def create_app(
    client: SessionClient, *, hosts: Collection[str], stopping: asyncio.Event
) -> FastAPI:
    """The gateway as an ASGI application.

    Args:
        client: what it serves; it stays the caller's to close.
        hosts: the names it may be called by, as they stand in a Host header, without port.
        stopping: set it to end every wait and every event stream.
    """
    # The usual pages at /docs load scripts from elsewhere, into an origin that is trusted here.
    app = FastAPI(title="Perdure", version="1", docs_url=None, redoc_url=None)
    app.router.redirect_slashes = False
    app.state.gateway = Gateway(client, stopping)
    app.state.codec = codec.codec_of(client.settings)
    for part in _PARTS:
        app.include_router(part.router, generate_unique_id_function=lambda route: route.name)
    install(app)
    # The last one added is asked first.
    app.add_middleware(RawPath)
    app.add_middleware(BodyLimit, limits=client.settings.limits)
    app.add_middleware(LoopbackOnly, hosts=hosts)
    app.add_middleware(codec.UiOrigins, origins=client.settings.temporal.encryption.ui_origins)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return app


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        routes = [route for part in _PARTS for route in part.router.routes]
        app.openapi_schema = describe(app, routes)
    return app.openapi_schema
