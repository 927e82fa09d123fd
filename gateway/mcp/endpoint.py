"""Where a gateway takes MCP requests: `/mcp`.

Invariant: a gateway that nobody asks by MCP does not load it; it takes a second.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway.http.parts import process_of

PATH = "/mcp"


class Endpoint:
    """The ASGI application. It begins with its first request and ends with its gateway."""

    def __init__(self) -> None:
        self._manager: Any = None
        self._holding: asyncio.Task[None] | None = None
        self._beginning = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._manager is None:
            await self._begin(process_of(scope).stopping)
        await self._manager.handle_request(scope, receive, send)

    async def _begin(self, stopping: asyncio.Event) -> None:
        async with self._beginning:
            if self._manager is not None:
                return
            streamable = await asyncio.to_thread(importlib.import_module, "gateway.mcp.streamable")
            manager, begun = streamable.manager(), asyncio.Event()
            self._holding = asyncio.create_task(streamable.hold(manager, begun, stopping))
            await begun.wait()
            self._manager = manager


def route() -> Route:
    """What the gateway mounts. There is nothing to GET or DELETE where no connection is kept."""
    return Route(PATH, Endpoint(), methods=["POST"], include_in_schema=False)
