"""A request become a message: sent once, then waited for or listened to.

Invariant: what reached us is admitted, whoever hangs up; and no wait outlives its caller or the
gateway.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

from fastapi import Request
from sse_starlette import EventSourceResponse, ServerSentEvent
from sse_starlette.sse import SendTimeoutError
from starlette.types import Receive, Scope, Send

from gateway.client import SessionClient
from gateway.http import parts
from gateway.http.events import HEARTBEAT, SEND_TIMEOUT
from gateway.http.openai.refusals import BadRequest, NoModel
from gateway.http.openai.requests import Asked
from gateway.http.openai.sessions import SESSION_HEADER, Choice, choose
from gateway.http.openai.speech import Ended, Speech, afterwards, speech
from gateway.http.parts import Gateway, while_wanted
from gateway.live import LiveSession
from perdure.config import Settings
from perdure.domain.errors import Unavailable
from perdure.store.transcript import TurnResult

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sent:
    """A message that was admitted. `live` hears its turn; None when it was sent before."""

    gateway: Gateway
    session_key: str
    message_id: str
    model: str
    created: int
    live: LiveSession | None

    @property
    def headers(self) -> dict[str, str]:
        """What every answer tells of where it came from."""
        return {SESSION_HEADER: self.session_key, "x-request-id": self.message_id}

    async def result(self, request: Request) -> TurnResult:
        """The end of the turn.

        Raises:
            Unavailable: when the gateway stops, or the caller has hung up.
            NotFound: when the message was discarded before its turn.
        """
        work = self.gateway.client.wait(self.session_key, self.message_id)
        return await while_wanted(work, self.gateway.stopping, caller=request)

    def heard(self) -> AsyncGenerator[Speech | Ended]:
        """The text of the turn while it is said, and its end.

        Raises:
            Unavailable: when the gateway stops.
            NotFound: as `result`.
        """
        if self.live is None:
            stream = afterwards(self.gateway, self.session_key, self.message_id)
        else:
            stream = speech(self.gateway, self.live, self.session_key, self.message_id)
        return _until(self.gateway.stopping, stream)


def check_model(settings: Settings, model: str) -> None:
    """Check that there is an agent of this name.

    Raises:
        NoModel: when there is none.
    """
    if model not in settings.agents:
        known = ", ".join(sorted(settings.agents))
        raise NoModel(f"There is no agent {model[:64]!r}.", f"The models here are: {known}.")


async def send(
    gateway: Gateway,
    request: Request,
    *,
    model: str,
    user: str | None,
    asked: Asked,
    stream: bool,
    previous: tuple[str, str] | None = None,
) -> Sent:
    """Send what a request says, in the session that it goes to; `previous` names the session and
    the message that it goes on from.

    Raises:
        NoModel: when there is no such agent.
        PerdureError: as `SessionClient.send` does.
    """
    client = gateway.client
    check_model(client.settings, model)
    limit = client.settings.limits.message_bytes
    if len(asked.newest.encode(errors="replace")) > limit:
        hint = "Put the content into a file of the workspace and name it."
        message = f"The newest message has more than {limit} bytes (limits.message_bytes)."
        raise BadRequest("messages", message, hint, "string_above_max_length")
    choice = await choose(gateway, request, model, user, previous[0] if previous else None)
    if previous is not None:
        await _check_newest(client, choice, previous[1])
    live = None
    if stream:
        after = await client.store.outbox.newest_id()
        live = client.live(choice.session_key, after=after)
        await live.listen()
    sending = client.send(
        choice.session_key,
        asked.newest,
        agent=model,
        message_id=choice.message_id,
        earlier=() if choice.named else asked.earlier,
    )
    try:
        ticket = await while_wanted(sending, gateway.stopping, within=parts.PATIENCE)
    except TimeoutError as error:
        raise Unavailable(
            "The message is not confirmed: Temporal or its workers are away.",
            "Send the request again with the same Idempotency-Key.",
        ) from error
    return Sent(
        gateway=gateway,
        session_key=choice.session_key,
        message_id=choice.message_id,
        model=model,
        created=int(time.time()),
        live=None if ticket.duplicate else live,
    )


async def _check_newest(client: SessionClient, choice: Choice, message_id: str) -> None:
    """Check that a message goes on from the newest turn of its session, unless it did before.

    Raises:
        NotFound: when there is no such session, or no such turn in it.
        BadRequest: when the session has gone on.
    """
    newest = (await client.status(choice.session_key)).turns
    turn = await client.turn(choice.session_key, message_id)
    store, here = client.store, (choice.session_key, choice.message_id)
    if await store.mailbox.holds(*here) or await store.transcript.turn_of(*here):
        return
    if turn is None or turn.turn != newest:
        param = "previous_response_id"
        hint = "Go on from the newest response: a session is one line of turns."
        raise BadRequest(param, "The session has gone on since this response.", hint)


class EventStream(EventSourceResponse):
    """Server-sent events with comments that keep a silent stream open while a turn works."""

    def __init__(self, events: AsyncIterator[ServerSentEvent], headers: dict[str, str]) -> None:
        super().__init__(
            events,
            headers=headers,
            ping=HEARTBEAT,
            ping_message_factory=lambda: ServerSentEvent(comment="working", sep="\n"),
            send_timeout=SEND_TIMEOUT,
            sep="\n",
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            _log.warning("dropped a listener that took nothing for %g s", SEND_TIMEOUT)


async def _until(
    stopping: asyncio.Event, stream: AsyncGenerator[Speech | Ended]
) -> AsyncGenerator[Speech | Ended]:
    stop = asyncio.create_task(stopping.wait())
    try:
        async with aclosing(stream):
            while True:
                item = asyncio.ensure_future(anext(stream, None))
                try:
                    await asyncio.wait([item, stop], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not item.done():
                        item.cancel()
                        await asyncio.gather(item, return_exceptions=True)
                if item.cancelled():
                    raise Unavailable("The gateway is stopping.", "Ask again in a moment.")
                found = item.result()
                if found is None:
                    return
                yield found
    finally:
        stop.cancel()
