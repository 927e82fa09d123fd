"""The MCP servers of one process: what they offer, and calls of their tools.

Invariant: one connection for each server, opened when it is first needed. What a process asks of
a server at once is bounded, and so is what it waits for a list.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import JsonValue

from perdure.config.sources import SourceSettings
from perdure.domain.errors import OutcomeUnknown, PerdureError, Unavailable
from perdure.domain.sources import ToolList

if TYPE_CHECKING:
    from mcp import Client, MCPError
    from mcp.types import CallToolResult, Tool

    from perdure.sources.connection import Connection
    from perdure.sources.listing import Offered

#: Requests that may be under way at one server.
MOST_CALLS = 16
#: Pages of one list of tools.
MOST_PAGES = 20
#: Characters of what a server says of a failure.
LONGEST_FAILURE = 20_000
#: Under which name a call tells the server that it is the same one.
IDEMPOTENCY_KEY = "perdure/idempotencyKey"

#: JSON-RPC errors that a server answers before it has done anything.
_NOT_DONE = frozenset({-32600, -32601, -32602, -32700})

#: What the MCP client says when a server that keeps connections does not know this one any more.
FORGOTTEN = "Session terminated"

_Answer = TypeVar("_Answer")

_log = logging.getLogger(__name__)


class Sources:
    """All servers of the settings. Close it when the process ends."""

    def __init__(self, settings: Mapping[str, SourceSettings], home: Path) -> None:
        self._settings = settings
        self._home = home
        self._servers: dict[str, _Server] = {}

    async def listing(self, server: str) -> ToolList:
        """What a server offers now.

        Raises:
            Unavailable: when it cannot be reached, or has no list in time.
        """
        return await (await self._server(server)).listing()

    async def lists(self, servers: list[str]) -> list[ToolList]:
        """What servers offer now, asked all at once; one that does not answer offers nothing."""
        return list(await asyncio.gather(*map(self._listing_or_none, servers)))

    async def call(self, server: str, tool: str, arguments: dict[str, JsonValue], key: str) -> str:
        """Call a tool, by the server's name for it; the text of its result.

        Args:
            server: as it is configured.
            tool: the server's own name of it.
            arguments: the server checks them.
            key: the same for every attempt of this call; the server is told a digest of it.

        Raises:
            Unavailable: when the tool failed or was not reached.
            OutcomeUnknown: when nobody knows whether it took effect.
        """
        return await (await self._server(server)).call(tool, arguments, key)

    async def close(self) -> None:
        """End every connection, and the processes behind them."""
        servers, self._servers = list(self._servers.values()), {}
        await asyncio.gather(*(server.connection.close() for server in servers))

    async def _listing_or_none(self, server: str) -> ToolList:
        try:
            return await self.listing(server)
        except PerdureError as error:
            _log.warning("no tools of %s: %s", server, error)
            return ToolList(server=server, reachable=False)

    async def _server(self, name: str) -> _Server:
        settings = self._settings.get(name)
        if settings is None:
            raise Unavailable(f"There is no MCP server {name!r}.", "It is not configured any more.")
        if name not in self._servers:
            # It takes a second to load, and whoever has no servers never does.
            module = await asyncio.to_thread(importlib.import_module, "perdure.sources.connection")
            opened: Connection = module.Connection(name, settings, self._home)
            self._servers.setdefault(name, _Server(name, settings, opened))
        return self._servers[name]


class _Server:
    """One server, and what it offered last."""

    def __init__(self, name: str, settings: SourceSettings, connection: Connection) -> None:
        self._name = name
        self._settings = settings
        self.connection = connection
        self._room = asyncio.Semaphore(MOST_CALLS)
        self._last: tuple[str, ToolList] | None = None

    async def listing(self) -> ToolList:
        """What it offers now; made anew only when it says something else than before."""
        from perdure.sources.listing import listing

        tools = await self._asked(self._tools)
        told = "\n".join(tool.model_dump_json() for tool in tools)
        seen = hashlib.sha256(told.encode()).hexdigest()
        if self._last is None or self._last[0] != seen:
            offered = [_offered(tool) for tool in tools]
            made = await asyncio.to_thread(listing, self._name, offered, self._settings.tools)
            for one in made.left_out:
                _log.warning("%s: the tool %s is left out: %s", self._name, one.name, one.reason)
            self._last = seen, made
        return self._last[1]

    async def call(self, tool: str, arguments: dict[str, JsonValue], key: str) -> str:
        """The text of a tool's result."""
        from mcp import MCPError

        from perdure.sources.contents import text_of

        meta: Any = {IDEMPOTENCY_KEY: hashlib.sha256(key.encode()).hexdigest()}

        async def asked(client: Client) -> CallToolResult:
            return await client.call_tool(tool, arguments, meta=meta)

        try:
            async with self._room:
                result = await self._asked(asked)
        except MCPError as error:
            raise self._failed(tool, error) from error
        except (PerdureError, TimeoutError):
            raise
        except Exception as error:
            # A result that is none by the protocol: the tool has run.
            raise OutcomeUnknown(
                f"{self._name} answered {tool} with what is no result: {type(error).__name__}.",
                "Check what it did before calling it again.",
            ) from error
        text = text_of(result)
        if result.is_error:
            raise Unavailable(f"{tool} of {self._name} failed: {text[:LONGEST_FAILURE]}")
        return text

    async def _asked(self, ask: Callable[[Client], Awaitable[_Answer]]) -> _Answer:
        """The answer to a request; asked again where the server has forgotten the connection, and
        so refuses whatever comes by it."""
        from mcp import MCPError

        try:
            return await ask(await self.connection.client())
        except MCPError as error:
            if error.message != FORGOTTEN:
                raise
        self.connection.drop()
        return await ask(await self.connection.client())

    async def _tools(self, client: Client) -> list[Tool]:
        from mcp import MCPError

        allowed = self._settings.connect_timeout
        tools: list[Tool] = []
        cursor = None
        try:
            async with asyncio.timeout(allowed):
                for _ in range(MOST_PAGES):
                    page = await client.list_tools(cursor=cursor)
                    tools += page.tools
                    cursor = page.next_cursor
                    if cursor is None:
                        break
        except TimeoutError:
            raise Unavailable(f"{self._name} had no list of tools within {allowed:g} s.") from None
        except (MCPError, ValueError) as error:
            if str(error) == FORGOTTEN:
                raise
            words = str(error)[:LONGEST_FAILURE]
            raise Unavailable(f"{self._name} gave no list of tools: {words}") from error
        return tools

    def _failed(self, tool: str, error: MCPError) -> PerdureError:
        if error.code in _NOT_DONE:
            return Unavailable(f"{self._name} refused {tool}: {error.message[:LONGEST_FAILURE]}")
        return OutcomeUnknown(
            f"Unknown outcome: {self._name} was asked for {tool} and gave no result: "
            f"{error.message[:LONGEST_FAILURE]}",
            "It may or may not have taken effect. Check before calling it again.",
        )


def _offered(tool: Tool) -> Offered:
    from perdure.sources.listing import Offered

    hints = tool.annotations
    return Offered(
        name=tool.name,
        description=tool.description or tool.title or tool.name,
        schema=tool.input_schema,
        read_only=bool(hints and hints.read_only_hint),
        idempotent=bool(hints and hints.idempotent_hint),
    )
