"""A real HTTP server on loopback that speaks OpenAI Chat Completions over SSE.

It records every request, answers as scripted, and misbehaves on demand the way providers do. Reach
it as `openai-chat:NAME` with `OPENAI_BASE_URL` set to `base_url`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

#: What happens after the last piece: the proper end; silence; a reset connection; an orderly end
#: of the body without the provider's last word; an error object in the stream.
Ending = Literal["finish", "hang", "reset", "cut", "error"]


@dataclass(frozen=True)
class Reply:
    """One scripted response. `wait` and `pause` are seconds, before the headers and each piece."""

    text: tuple[str, ...] = ()
    calls: tuple[tuple[str, str, str], ...] = ()
    refusal: str = ""
    finish_reason: str | None = None
    usage: tuple[int, int] | None = (11, 7)
    wait: float = 0.0
    pause: float = 0.0
    ending: Ending = "finish"
    status: int = 200
    body: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


def says(*pieces: str, **more: Any) -> Reply:
    """A text answer, streamed in these pieces."""
    return Reply(text=pieces, **more)


def calls(*called: tuple[str, str, str], **more: Any) -> Reply:
    """Tool calls, each an id, a name and the arguments as text."""
    return Reply(calls=called, **more)


def fails(status: int, message: str = "it failed", code: str = "", **headers: str) -> Reply:
    """An HTTP error in OpenAI's form. A header is named with `_` for `-`."""
    error = {"message": message, "type": "error", "code": code or None}
    return Reply(
        status=status,
        body=json.dumps({"error": error}),
        headers={name.replace("_", "-"): value for name, value in headers.items()},
    )


@dataclass
class Request:
    """A request as it came. `closed` is set when the client closes before the response is over."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    closed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The chat messages that were sent."""
        messages: list[dict[str, Any]] = self.body["messages"]
        return messages


class OpenAIServer:
    """`async with OpenAIServer() as server`; replies are taken in order, then `default` serves."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.default: Callable[[Request], Reply] = lambda _: says("fine")
        self._script: deque[Reply] = deque()
        self._arrived = asyncio.Condition()
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        """What `OPENAI_BASE_URL` is to be."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    def script(self, *replies: Reply) -> None:
        """Answer the next requests with these."""
        self._script.extend(replies)

    def forget(self) -> None:
        """Drop the requests so far, the rest of the script and a `default` that was set."""
        self.requests.clear()
        self._script.clear()
        self.default = lambda _: says("fine")

    async def arrived(self, count: int = 1) -> Request:
        """Wait until `count` requests have come, for a minute at most; the last of them."""
        async with asyncio.timeout(60), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return self.requests[count - 1]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while request := await _read_request(reader):
                async with self._arrived:
                    self.requests.append(request)
                    self._arrived.notify_all()
                reply = self._script.popleft() if self._script else self.default(request)
                if not await self._respond(request, reply, reader, writer):
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _respond(
        self,
        request: Request,
        reply: Reply,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Send `reply`; whether the connection can serve another request."""
        sending = asyncio.ensure_future(_send(request, reply, writer))
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                request.closed.set()
                return False
            await sending
            return reply.ending != "reset"
        finally:
            for task in (sending, gone):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                    await task


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.strip().split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(path=first.split(" ")[1], headers=headers, body=json.loads(body))


async def _send(request: Request, reply: Reply, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(reply.wait)
    headers = {"content-type": "application/json", **reply.headers}
    if reply.status != 200 or reply.body:
        body = reply.body.encode()
        headers["content-length"] = str(len(body))
        writer.write(_head(reply.status, headers) + body)
        await writer.drain()
        return
    writer.write(
        _head(200, {**headers, "content-type": "text/event-stream", "transfer-encoding": "chunked"})
    )
    for delta in _deltas(reply):
        await asyncio.sleep(reply.pause)
        await _event(writer, _chunk(request, delta))
    if reply.ending == "hang":
        await asyncio.Event().wait()
    if reply.ending == "reset":
        await asyncio.sleep(0.02)  # let what was written leave before the connection is torn down
        writer.transport.abort()
        return
    if reply.ending == "error":
        await _event(writer, {"error": {"message": "the engine died", "code": "server_error"}})
    if reply.ending == "finish":
        reason = reply.finish_reason or ("tool_calls" if reply.calls else "stop")
        await _event(writer, _chunk(request, {}, reason))
        if reply.usage:
            spent = {"prompt_tokens": reply.usage[0], "completion_tokens": reply.usage[1]}
            usage = {**spent, "total_tokens": sum(reply.usage)}
            await _event(writer, {**_chunk(request, {}), "choices": [], "usage": usage})
        _write_chunk(writer, b"data: [DONE]\n\n")
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def _deltas(reply: Reply) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"content": piece} for piece in reply.text]
    if reply.refusal:
        deltas.append({"refusal": reply.refusal})
    for index, (call_id, name, arguments) in enumerate(reply.calls):
        half = len(arguments) // 2
        start = {"id": call_id, "type": "function"}
        deltas += [
            {"tool_calls": [{"index": index, **start, "function": {"name": name, "arguments": ""}}]}
        ]
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": part}}]}
            for part in (arguments[:half], arguments[half:])
        ]
    return deltas


def _chunk(request: Request, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": request.body["model"],
        "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
    }


async def _event(writer: asyncio.StreamWriter, data: dict[str, Any]) -> None:
    _write_chunk(writer, f"data: {json.dumps(data)}\n\n".encode())
    await writer.drain()


def _write_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
