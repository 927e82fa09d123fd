"""The ASGI application: endpoints, guards and their description, over one `SessionClient`.

Invariant: no request reaches an endpoint past a guard, and /openapi.json says all that can be
answered, refusals included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from fastapi import Depends, FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import Receive, Scope, Send

from gateway.client import SessionClient
from gateway.gate import KeyGate
from gateway.http import (
    approvals,
    codec,
    contexts,
    events,
    hooks,
    keys,
    memory,
    messages,
    runs,
    schedules,
    search,
    service,
    sessions,
    tell,
    watching,
)
from gateway.http.access import routes, scopes_of
from gateway.http.authentication import Authentication
from gateway.http.description import SHAPED, describe
from gateway.http.guard import BodyLimit, KnownPlaces, RawPath
from gateway.http.openai import chat, responses
from gateway.http.openai.refusals import of_problem
from gateway.http.parts import Process, known_parameters
from gateway.http.problems import install
from gateway.http.shaping import Shape, shaped
from gateway.mcp.endpoint import PATH as MCP_PATH
from gateway.mcp.endpoint import route as mcp_route
from gateway.mcp.refusals import of_problem as by_json_rpc
from perdure.domain.access import Caller

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
    schedules,
    hooks,
    service,
    keys,
    codec,
    chat,
    responses,
    watching,
)


#: Whoever calls these may add parameters of their own to the URL.
_FORGIVING = (hooks, chat, responses)

#: Clients of these paths, and of those below them, expect refusals in a shape of their own.
SHAPES: Mapping[str, Shape] = {**dict.fromkeys(SHAPED, of_problem), MCP_PATH: by_json_rpc}


class _App(FastAPI):
    """FastAPI, whose refusals take the shape of their path, those of its guards included."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await super().__call__(scope, receive, shaped(scope, send, SHAPES))


def create_app(
    client: SessionClient,
    *,
    hosts: Collection[str],
    stopping: asyncio.Event,
    gate: KeyGate | None = None,
) -> FastAPI:
    """The gateway as an ASGI application.

    Args:
        client: what it serves; it stays the caller's to close.
        hosts: the names it may be called by, as they stand in a Host header, without port.
        stopping: set it to end every wait and every event stream.
        gate: who says who asks; by default, whoever asks is at this machine.
    """
    # The usual pages at /docs load scripts from elsewhere, into an origin that is trusted here.
    app = _App(title="Perdure", version="1", docs_url=None, redoc_url=None)
    app.router.redirect_slashes = False
    app.state.process = Process(client, stopping)
    app.state.codec = codec.codec_of(client.settings)
    for part in _PARTS:
        app.include_router(
            part.router,
            dependencies=[] if part in _FORGIVING else [Depends(known_parameters)],
            generate_unique_id_function=lambda route: route.name,
        )
    app.router.routes.append(mcp_route())
    install(app)
    # The last one added is asked first.
    app.add_middleware(watching.Routed)
    app.add_middleware(RawPath)
    app.add_middleware(BodyLimit, limits=client.settings.limits)
    app.add_middleware(
        Authentication,
        gate=gate or gate_of(client),
        refusals=client.refusals,
        is_open=lambda path: _is_open(app, path),
    )
    origins = client.settings.gateway.origins
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["ETag", "Link", "Location", "Retry-After"],
        )
    app.add_middleware(KnownPlaces, hosts=hosts, origins=origins)
    app.add_middleware(codec.UiOrigins, origins=client.settings.temporal.encryption.ui_origins)
    app.add_middleware(watching.Watching)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    return app


def gate_of(client: SessionClient, *, keys: bool = False) -> KeyGate:
    """The gate of a gateway. Unless `keys` are asked for, who sends none is at this machine."""
    local = None if keys else Caller.local(client.settings.gateway.level)
    return KeyGate(client.store, client.refusals, local)


def _is_open(app: FastAPI, path: str) -> bool:
    """Whether a path is there for those who send no key."""
    if path == app.openapi_url:
        return True
    return any(
        scopes_of(route) == frozenset() and route.path_regex.match(path) for route in routes(app)
    )


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        app.openapi_schema = describe(app)
    return app.openapi_schema
