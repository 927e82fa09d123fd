"""Every request is watched from one place: its log lines, its figures, its span.

Invariant: a route is told by its pattern and a caller by name; nothing of a path, a query or a
body is. The id of a request is answered with it, so that a person can find its lines.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from http import HTTPMethod

from fastapi import APIRouter, Response
from opentelemetry.trace import SpanKind
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from ulid import ULID

from gateway.http.access import needs, of_every_tenant
from gateway.http.parts import TheProcess
from gateway.metrics import scraped
from perdure.domain.access import Scope as Access
from perdure.telemetry import metrics, tracing, work

router = APIRouter(tags=["service"])

_ID = "X-Request-ID"
#: An id that a proxy gave is kept, as far as it is one.
_GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NOTE = "perdure.request"
#: Asked every few seconds, by nobody who looks for a trace.
_UNTRACED = ("/metrics", "/healthz", "/readyz")
_EXAMPLE = "perdure_waiting_messages 3.0\nperdure_oldest_waiting_message_seconds 0.2\n"
_METHODS = frozenset(HTTPMethod)


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "In Prometheus's text format.",
            "content": {"text/plain": {"schema": {"type": "string"}, "example": _EXAMPLE}},
        }
    },
    dependencies=[needs(Access.READ), of_every_tenant()],
)
async def tell_metrics(process: TheProcess) -> Response:
    """The metrics of this process for Prometheus, and how much waits in the store."""
    return Response(await scraped(process.client.store), media_type=metrics.CONTENT_TYPE)


@dataclass
class _Request:
    """What becomes known of a request on its way in."""

    route: str = "other"


class Watching:
    """Watches requests, those that a guard refuses included. The outermost layer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get(_ID, "")
        request_id = given if _GIVEN_ID.fullmatch(given) else str(ULID())
        method = scope["method"] if scope["method"] in _METHODS else "other"
        request, began = _Request(), time.perf_counter()
        work.note(request=request_id)
        traced = tracing.on() and scope["path"] not in _UNTRACED
        attributes = {"http.request.method": method}
        parent = tracing.read(headers.get("traceparent"))
        with tracing.span(
            method, attributes, kind=SpanKind.SERVER, parent=parent, unless=not traced
        ) as span:

            async def watched(message: Message) -> None:
                if message["type"] == "http.response.start":
                    status = message["status"]
                    metrics.HTTP_REQUESTS.labels(method, request.route, status).inc()
                    seconds = time.perf_counter() - began
                    metrics.HTTP_SECONDS.labels(method, request.route).observe(seconds)
                    MutableHeaders(scope=message)[_ID] = request_id
                    if span is not None:
                        span.update_name(f"{method} {request.route}")
                        span.set_attribute("http.route", request.route)
                        span.set_attribute("http.response.status_code", status)
                        if status >= 500:
                            tracing.failed(span, str(status))
                await send(message)

            await self._app({**scope, _NOTE: request}, receive, watched)


class Routed:
    """Notes where a request was routed to and who made it. The innermost layer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = scope.get(_NOTE)
        if request is None:
            await self._app(scope, receive, send)
            return
        caller = scope.get("state", {}).get("caller")
        if caller is not None:
            work.note(caller=caller.name)

        async def routed(message: Message) -> None:
            route = scope.get("route")
            request.route = getattr(route, "path_format", None) or getattr(route, "path", "other")
            await send(message)

        await self._app(scope, receive, routed)
