"""A session's events as Server-Sent Events, from a cursor on.

Invariant: what a listener has received, in order and without a gap, is all events up to the id it
saw last; so coming back with `Last-Event-ID` misses nothing and sees nothing twice. A listener
that does not keep up costs a bounded amount of memory, and is told before it is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Response
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from gateway.client import SessionClient
from gateway.http.access import needs
from gateway.http.parts import KeyInPath, TheGateway, problems
from perdure.domain.access import Scope
from perdure.domain.errors import Conflict, InvalidArgument, NotFound
from perdure.domain.messages import Frozen
from perdure.store.outbox import Event
from perdure.telemetry.metrics import LISTENERS

router = APIRouter(prefix="/v1/sessions/{key}", tags=["events"])

#: Seconds between comments that keep proxies from closing a silent stream.
HEARTBEAT = 15.0
#: Milliseconds after which a browser comes back by itself.
RETRY = 1_000
#: Events that may wait for one listener; behind that it is fed from the store.
BACKLOG = 500
#: Seconds in which a listener must take a whole backlog.
PATIENCE = 30.0
#: Seconds in which a socket that is full must take something.
SEND_TIMEOUT = 30.0

_log = logging.getLogger(__name__)

_EXAMPLE = (
    "retry: 1000\n\n"
    "id: 41\nevent: turn.started\n"
    'data: {"id":41,"session_key":"default:bob","kind":"turn.started","turn":1,"step":null,'
    '"payload":{"message_id":"order-4711"},"at":"2026-01-01T12:00:00Z"}\n\n'
    ": heartbeat\n\n"
    'event: end\ndata: {"reason":"stopping","message":"The gateway is stopping."}\n\n'
)


class End(Frozen):
    """The last thing a listener hears, as the event `end`; its last id stays good."""

    reason: Literal["stopping", "slow", "unavailable", "gone"]
    message: str


@router.get(
    "/events",
    response_class=Response,
    responses={
        200: {
            "description": "The events, each with its id, until either side ends.",
            "content": {
                "text/event-stream": {"schema": {"type": "string"}, "example": _EXAMPLE},
            },
        },
        **problems(400, 404, 409),
    },
    dependencies=[needs(Scope.CHAT, Scope.READ)],
)
async def follow_events(
    key: KeyInPath,
    gateway: TheGateway,
    after: Annotated[
        str,
        Query(
            description="The cursor to begin after: the id of an event, 0 for the session's "
            "beginning, or `newest` for what comes from now on.",
            examples=["0", "newest"],
        ),
    ] = "0",
    last_event_id: Annotated[
        str | None,
        Header(description="What a client that comes back saw last; goes before `after`."),
    ] = None,
) -> Response:
    """Every event of a session after a cursor, each once, for as long as you listen."""
    await gateway.client.status(key)  # refuses while refusing is still possible
    outbox = gateway.client.store.outbox
    newest = await outbox.newest_id()
    start = last_event_id or after
    cursor = newest if start == "newest" else _cursor(start)
    if cursor > newest:
        raise Conflict(
            f"The cursor {cursor} is ahead of the newest event, {newest}.",
            "It belongs to another store. Begin again without it.",
        )
    listener = _Listener(gateway.client, key, cursor, gateway.stopping)
    return _EventStream(
        listener.stream(),
        ping=HEARTBEAT,
        ping_message_factory=lambda: ServerSentEvent(comment="heartbeat", sep="\n"),
        send_timeout=SEND_TIMEOUT,
        sep="\n",
    )


class _EventStream(EventSourceResponse):
    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            # Its socket is full, so it cannot be told; it learns by the end of its connection.
            _log.warning("dropped a listener that took nothing for %g s", SEND_TIMEOUT)


class _Listener:
    """One connection: a queue between the store's tail and a socket of any speed."""

    def __init__(
        self, client: SessionClient, key: str, cursor: int, stopping: asyncio.Event
    ) -> None:
        self._client = client
        self._outbox = client.store.outbox
        self._key = key
        self._cursor = cursor
        self._stopping = stopping
        self._queue: asyncio.Queue[Event | End] = asyncio.Queue()

    async def stream(self) -> AsyncIterator[bytes | ServerSentEvent]:
        tasks = [asyncio.create_task(self._feed()), asyncio.create_task(self._end_when_stopping())]
        LISTENERS.inc()
        try:
            yield ServerSentEvent(retry=RETRY, sep="\n")
            while True:
                # All that is there at once: what a commit tells is one write to the socket.
                batch = [await self._queue.get()]
                while not self._queue.empty():
                    batch.append(self._queue.get_nowait())
                end = next((at for at, item in enumerate(batch) if isinstance(item, End)), None)
                yield "".join(map(_frame, batch[: None if end is None else end + 1])).encode()
                if end is not None:
                    return
                for _ in batch:
                    self._queue.task_done()
        finally:
            LISTENERS.dec()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _feed(self) -> None:
        try:
            await self._fill()
            # Behind: the live tail is let go of, since it would grow, until all of this is taken.
            # Nothing is lost by that, the cursor knows where to go on.
            while await self._all_taken():
                await self._fill()
            _log.warning("dropping a listener %d events behind", self._queue.qsize())
            self._end("slow", f"{BACKLOG} events were not taken within {PATIENCE:g} s.")
        except NotFound:
            # It has risen above what this listener may be told.
            self._end("gone", "The session is not there any more.")
        except Exception:
            # Whatever broke it, the listener must be told: a silent stream looks like rest.
            _log.exception("the tail of a listener broke")
            self._end("unavailable", "The gateway cannot read the events now.")

    async def _all_taken(self) -> bool:
        try:
            await asyncio.wait_for(self._queue.join(), PATIENCE)
        except TimeoutError:
            return False
        return True

    async def _fill(self) -> None:
        newest = await self._outbox.newest_id()
        page, room = None, 0
        while page is None or len(page) == room:
            room = BACKLOG - self._queue.qsize()
            page = await self._outbox.page(self._key, self._cursor, room)
            for event in page:
                await self._tell(event)
            if self._queue.qsize() >= BACKLOG:
                return
        # The tail is shared by all: it is not to go back for one who comes from long ago.
        self._cursor = max(self._cursor, newest)
        async with aclosing(self._outbox.follow(self._key, self._cursor, near=True)) as events:
            async for event in events:
                await self._tell(event)
                if self._queue.qsize() >= BACKLOG:
                    return

    async def _tell(self, event: Event) -> None:
        self._queue.put_nowait(await self._client.shown(event))
        self._cursor = event.id

    async def _end_when_stopping(self) -> None:
        await self._stopping.wait()
        self._end("stopping", "The gateway is stopping.")

    def _end(
        self, reason: Literal["stopping", "slow", "unavailable", "gone"], message: str
    ) -> None:
        self._queue.put_nowait(End(reason=reason, message=f"{message} Come back with the last id."))


def _frame(item: Event | End) -> str:
    if isinstance(item, End):
        return f"event: end\ndata: {item.model_dump_json()}\n\n"
    return f"id: {item.id}\nevent: {item.kind}\ndata: {item.as_json}\n\n"


def _cursor(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 19:
        raise InvalidArgument(
            "The cursor is not the id of an event.",
            "Send the last id you saw, or 0, or after=newest.",
        )
    return int(text)
