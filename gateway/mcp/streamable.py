"""MCP by streamable HTTP: what is behind `/mcp` of a gateway.

Invariant: nothing is kept between two requests, so any gateway answers any of them; whoever lost
one comes back with a message id. Who asks was settled before a request comes here.
"""

from __future__ import annotations

import asyncio

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request

from gateway.http.parts import Gateway, gateway_of
from gateway.mcp.server import Context, server

#: The gateway's own guards bound bodies, and know which hosts it is called by.
_UNBOUNDED = 2**40
_GUARDED = TransportSecuritySettings(enable_dns_rebinding_protection=False)


def manager() -> StreamableHTTPSessionManager:
    """What answers the requests, once it is held by `hold`."""
    return StreamableHTTPSessionManager(
        server(_gateway),
        stateless=True,
        security_settings=_GUARDED,
        max_request_body_size=_UNBOUNDED,
    )


async def hold(
    managed: StreamableHTTPSessionManager, begun: asyncio.Event, stopping: asyncio.Event
) -> None:
    """Have it answer, from `begun` until `stopping`."""
    async with managed.run():
        begun.set()
        await stopping.wait()


def _gateway(context: Context) -> Gateway:
    request = context.request
    assert isinstance(request, Request), "it came by HTTP"
    return gateway_of(request.scope)
