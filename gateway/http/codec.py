"""What Temporal keeps sealed, in clear: for the Temporal UI and the Temporal CLI.

Invariant: who can have payloads opened reads every tenant's, so it takes the scope `admin`; and of
web pages only those of the configured UI get an answer.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from google.protobuf import json_format
from pydantic import ConfigDict, Field
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from temporalio.api.common.v1 import Payloads

from gateway.codec import Sealing
from gateway.http.access import needs, of_every_tenant
from gateway.http.parts import problems
from perdure.config import Settings
from perdure.domain.access import Scope as Access
from perdure.domain.errors import InvalidArgument
from perdure.domain.messages import Frozen
from perdure.encryption import CannotOpen, Keyring

_log = logging.getLogger(__name__)

PREFIX = "/codec/"
router = APIRouter(
    prefix="/codec", tags=["codec"], dependencies=[needs(Access.ADMIN), of_every_tenant()]
)

#: What the Temporal UI sends along.
_HEADERS = "Authorization, Content-Type, X-Namespace"


class WirePayload(Frozen):
    """A payload in the JSON form of Temporal's API: bytes in base64."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    metadata: dict[str, str] = Field({}, examples=[{"encoding": "anNvbi9wbGFpbg=="}])
    data: str = Field("", examples=["ImhlbGxvIg=="])


class WirePayloads(Frozen):
    """Payloads, each answered in its place."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    payloads: tuple[WirePayload, ...] = Field((), max_length=10_000)


def codec_of(settings: Settings) -> Sealing:
    """What opens and seals for people: clear payloads pass, as they do in a mixed history.

    Raises:
        InvalidArgument: when a key cannot be read.
    """
    return Sealing(Keyring(settings.temporal.encryption))


async def _codec(request: Request) -> Sealing:
    codec = request.app.state.codec
    assert isinstance(codec, Sealing)
    return codec


TheCodec = Annotated[Sealing, Depends(_codec)]


@router.post("/decode", responses=problems(400))
async def decode(body: WirePayloads, codec: TheCodec) -> WirePayloads:
    """Open sealed payloads; clear ones come back as they are."""
    try:
        opened = await codec.decode(_read(body).payloads)
    except CannotOpen as error:
        raise InvalidArgument(error.message, error.hint) from error
    _log.info("opened %d payloads", len(opened))
    return _written(Payloads(payloads=opened))


@router.post("/encode", responses=problems(400))
async def encode(body: WirePayloads, codec: TheCodec) -> WirePayloads:
    """Seal payloads under the active key; without one they come back as they are."""
    return _written(Payloads(payloads=await codec.encode(_read(body).payloads)))


def _read(body: WirePayloads) -> Payloads:
    try:
        return json_format.ParseDict(body.model_dump(), Payloads())
    except json_format.ParseError as error:
        raise InvalidArgument(
            "A payload is not in the JSON form of Temporal's API.",
            "Send its data and the values of its metadata in base64.",
        ) from error


def _written(payloads: Payloads) -> WirePayloads:
    return WirePayloads.model_validate(json_format.MessageToDict(payloads))


class UiOrigins:
    """Lets web pages of the given origins call the codec, and nothing else (CORS).

    Args:
        app: what they call.
        origins: as a browser writes them in an Origin header.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app = app
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origin = Headers(scope=scope).get("origin") if scope["type"] == "http" else None
        if origin not in self._origins or not scope["path"].startswith(PREFIX):
            await self._app(scope, receive, send)
            return
        if scope["method"] == "OPTIONS":
            allowed = {"Access-Control-Allow-Methods": "POST", "Access-Control-Max-Age": "600"}
            answer = Response(None, 204, allowed | {"Access-Control-Allow-Headers": _HEADERS})
            await answer(scope, receive, _allowing(send, origin))
            return
        # From here on it is a request of ours: the guards refuse those of other origins.
        headers = [(name, value) for name, value in scope["headers"] if name != b"origin"]
        await self._app({**scope, "headers": headers}, receive, _allowing(send, origin))


def _allowing(send: Send, origin: str) -> Send:
    async def allowing(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["Access-Control-Allow-Origin"] = origin
            headers["Vary"] = "Origin"
        await send(message)

    return allowing
