"""MCP by pipes: `perdure mcp`, started by the client itself.

Invariant: nothing but the protocol is written to standard output. Who asks is whoever started the
process, within the bounds of its options.
"""

from __future__ import annotations

import asyncio

from mcp.server.stdio import stdio_server

from gateway.client import SessionClient
from gateway.http.parts import Gateway
from gateway.mcp.server import Context, server
from perdure.config import Settings
from perdure.domain.access import Caller


async def serve(settings: Settings, caller: Caller) -> None:
    """Serve one client on this process's standard streams until it closes them.

    Raises:
        Unavailable: when Temporal cannot be reached, or the store cannot be opened.
    """
    async with SessionClient.connect(settings) as client:
        gateway = Gateway(client.on_behalf_of(caller), caller, asyncio.Event())

        def gateway_of(context: Context) -> Gateway:
            return gateway

        serving = server(gateway_of)
        async with stdio_server() as (reading, writing):
            await serving.run(reading, writing, serving.create_initialization_options())
