"""One connection to an MCP server, opened when it is needed and again when it has ended.

Invariant: a request is sent once. When a connection ends under it, the caller is told that its
outcome is unknown; nothing here sends it again. The task that opened a connection closes it, with
the process behind it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TextIO, cast

import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import CallToolResult, Implementation

from perdure.config.sources import SourceSettings, expanded
from perdure.domain.errors import PerdureError, Unavailable

#: Seconds before a server that could not be reached is tried again, doubled up to the second.
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
#: Seconds that an HTTP server may take to take a request; how long it answers, the caller bounds.
_SENDING = 30.0

_Streams = tuple[Any, Any]


class Connection:
    """The way to one server. `client` is good until the server ends or the way is closed."""

    def __init__(self, name: str, settings: SourceSettings, home: Path) -> None:
        self._name = name
        self._settings = settings
        self._home = home
        self._opening = asyncio.Lock()
        self._live: _Live | None = None
        self._pause = SHORTEST_PAUSE
        self._next_try = 0.0
        self._refusal: Unavailable | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    async def client(self) -> Client:
        """A client that is connected.

        Raises:
            Unavailable: when the server cannot be reached; nothing was sent to it.
        """
        async with self._opening:
            if self._live is not None and not self._live.ended.is_set():
                return self._live.client
            if self._refusal and asyncio.get_running_loop().time() < self._next_try:
                raise self._refusal
            self._leave()
            try:
                self._live = await self._open()
            except Unavailable as error:
                self._refusal = error
                self._next_try = asyncio.get_running_loop().time() + self._pause
                self._pause = min(self._pause * 2, LONGEST_PAUSE)
                raise
            self._refusal, self._pause = None, SHORTEST_PAUSE
            return self._live.client

    def drop(self) -> None:
        """Have the connection ended; the next one to ask opens another."""
        self._leave()

    async def close(self) -> None:
        """End the connection, and the process behind it."""
        self._leave()
        if self._leaving:
            await asyncio.wait(self._leaving)

    def _leave(self, live: _Live | None = None) -> None:
        # A process that does not listen takes seconds to end: nobody waits for that but `close`.
        if live is None:
            live, self._live = self._live, None
        if live is not None:
            task = asyncio.create_task(live.close(), name="mcp-leaving")
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _open(self) -> _Live:
        allowed = self._settings.connect_timeout
        live = _Live(self._transport)
        try:
            async with asyncio.timeout(allowed) as deadline:
                await live.start()
        except BaseException as error:
            self._leave(live)
            if isinstance(error, PerdureError) or not isinstance(error, Exception):
                raise
            late = isinstance(error, TimeoutError) and deadline.expired()
            why = f"no answer within {allowed:g} s" if late else _reason(error)
            raise Unavailable(
                f"The MCP server {self._name} cannot be reached: {why}.",
                f"`perdure mcp sources` tells more; it is set in [mcp.{self._name}].",
            ) from error
        return live

    @asynccontextmanager
    async def _transport(self) -> AsyncIterator[_Streams]:
        settings = self._settings
        if settings.url is not None:
            timeout = httpx2.Timeout(_SENDING, read=None)
            headers = expanded(settings.headers, os.environ)
            async with (
                httpx2.AsyncClient(headers=headers, timeout=timeout) as http,
                streamable_http_client(settings.url, http_client=http) as streams,
            ):
                yield streams
            return
        parameters = StdioServerParameters(
            command=settings.command or "",
            args=settings.args,
            env=expanded(settings.env, os.environ),
            cwd=self._home,
        )
        with _errors() as errlog:
            async with stdio_client(parameters, cast(TextIO, errlog)) as streams:
                yield streams


class _Live:
    """A connection that is open, held by a task of its own."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.ended = asyncio.Event()
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    @property
    def client(self) -> Client:
        return self._ready.result()

    async def start(self) -> None:
        """Connect. Raises whatever stands in the way."""
        self._task = asyncio.create_task(self._hold(), name="mcp-connection")
        await asyncio.shield(self._ready)

    async def close(self) -> None:
        self._stop.set()
        if self._task is not None:
            if not self._ready.done():
                self._task.cancel()
            await asyncio.wait([self._task])

    async def _hold(self) -> None:
        try:
            client = Client(
                _Watched(self._transport(), self.ended),
                client_info=Implementation(name="perdure", version="1"),
            )
            async with client:
                client.session.validate_tool_result = _unchecked  # type: ignore[method-assign]
                self._ready.set_result(client)
                await _first(self._stop, self.ended)
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
                self._ready.exception()  # it may be that nobody waits any more
            if not isinstance(error, Exception):
                raise
        finally:
            self.ended.set()


class _Watched:
    """A transport that tells when its server has ended: its stream of messages has."""

    def __init__(
        self, transport: AbstractAsyncContextManager[_Streams], ended: asyncio.Event
    ) -> None:
        self._transport = transport
        self._ended = ended

    async def __aenter__(self) -> _Streams:
        reading, writing = await self._transport.__aenter__()
        return _Reading(reading, self._ended), writing

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._transport.__aexit__(kind, error, trace)


class _Reading:
    """The messages of a server, and that there will be no more."""

    def __init__(self, stream: Any, ended: asyncio.Event) -> None:
        self._stream = stream
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            message: SessionMessage | Exception = await self._stream.__anext__()
        except BaseException:
            # However it ended, StopAsyncIteration too: who waits for it must hear.
            self._ended.set()
            raise
        return message

    async def receive(self) -> SessionMessage | Exception:
        message: SessionMessage | Exception = await self._stream.receive()
        return message

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        closed: bool | None = await self._stream.__aexit__(kind, error, trace)
        return closed


async def _unchecked(name: str, result: CallToolResult) -> None:
    """Stands for the check of a server's answer by the server's own schema, which keeps nobody
    from anything: a pattern in it that takes for ever would stop this process."""


async def _first(*events: asyncio.Event) -> None:
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _errors() -> IO[str]:
    """Where a server's stderr goes: to ours, or nowhere. A copy, to be closed."""
    try:
        return open(os.dup(sys.__stderr__.fileno()), "w")  # type: ignore[union-attr]
    except (AttributeError, OSError, ValueError):
        return open(os.devnull, "w")


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    words = str(error).strip().split("\n")[0] or type(error).__name__
    return words[:300].rstrip(".")
