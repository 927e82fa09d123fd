"""Who asks: settled before a request is routed, from its headers alone.

Invariant: whatever is behind this finds a `Caller` in `scope["state"]["caller"]`, or None at a path
that is open to all. A key is taken from a header; one in a URL is refused, and written nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol
from urllib.parse import unquote_plus

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.http.access import HOW
from gateway.http.problems import problem, refused
from perdure.domain.access import Caller
from perdure.domain.errors import Code, PerdureError, Unauthenticated
from perdure.domain.labels import Label

#: What a key looks like, as far as it must be told from anything else.
KEY = re.compile(r"pdr_[A-Za-z0-9]+_[A-Za-z0-9_-]+")


class Gate(Protocol):
    """Who tells who asks."""

    async def admit(self, key: str | None, address: str) -> Caller | None:
        """The caller with this key, asking from this address; None when there must be a key and
        none was sent.

        Raises:
            Unauthenticated: when the key is not good.
            RateLimited: when the caller, or the address, has asked too much.
        """


class Authentication:
    """Has a gate say who asks, and refuses whoever it does not know.

    Args:
        app: what to guard.
        gate: who knows the callers.
        is_open: whether a path is open to those who send no key.
    """

    def __init__(self, app: ASGIApp, gate: Gate, is_open: Callable[[str], bool]) -> None:
        self._app = app
        self._gate = gate
        self._is_open = is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        url = f"{scope['raw_path'].decode('latin-1')}?{scope['query_string'].decode('latin-1')}"
        if KEY.search(unquote_plus(url)):
            detail = "A key stands in the URL, where it is logged and remembered on the way here."
            await problem(400, Code.INVALID_ARGUMENT, detail, HOW)(scope, receive, send)
            return
        client = scope.get("client")
        try:
            key = _key(Headers(scope=scope))
            caller = await self._gate.admit(key, client[0] if client else "")
            if caller is None and not self._is_open(scope["path"]):
                raise Unauthenticated("This gateway asks for an API key.", HOW)
        except PerdureError as error:
            await refused(error)(scope, receive, send)
            return
        state = {**scope.get("state", {}), "caller": caller}
        await self._app({**scope, "state": state}, receive, send)


def _key(headers: Headers) -> str | None:
    """The key that a request carries."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return value.strip()
    return headers.get("x-api-key") or None


class Local:
    """The gate of a gateway that nobody but this machine reaches: whoever asks is at home."""

    def __init__(self, clearance: Label) -> None:
        self._caller = Caller.local(clearance)

    async def admit(self, key: str | None, address: str) -> Caller | None:
        """See `Gate`."""
        return self._caller
