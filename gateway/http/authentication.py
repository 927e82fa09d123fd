"""Who asks: settled before a request is routed, from its headers alone.

Invariant: whatever is behind this finds a `Caller` in `scope["state"]["caller"]`, or None at a path
that is open to all. A key is taken from a header; one in a URL is refused, and written nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import unquote_plus

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.gate import HOW, KeyGate, TooOften
from gateway.http.problems import problem
from gateway.refusals import Refusals
from perdure.domain.errors import Code, Unauthenticated

#: Of a path the audit trail gets this much.
_SHOWN = 200
#: What a key looks like, as far as it must be told from anything else.
KEY = re.compile(r"pdr_[A-Za-z0-9]+_[A-Za-z0-9_-]+")


class Authentication:
    """Has a gate say who asks, and refuses whoever it does not know.

    Args:
        app: what to guard.
        gate: who knows the callers.
        refusals: where refusals are noted.
        is_open: whether a path is open to those who send no key.
    """

    def __init__(
        self, app: ASGIApp, gate: KeyGate, refusals: Refusals, is_open: Callable[[str], bool]
    ) -> None:
        self._app = app
        self._gate = gate
        self._refusals = refusals
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
        address = client[0] if client else ""
        try:
            caller = await self._gate.admit(_key(Headers(scope=scope)), address)
            if caller is None and not self._is_open(scope["path"]):
                raise Unauthenticated("This gateway asks for an API key.", HOW)
        except TooOften as error:
            wait = {"Retry-After": str(error.seconds)}
            told = problem(429, error.code, error.message, error.hint, headers=wait)
            await told(scope, receive, send)
            return
        except Unauthenticated as error:
            await _unknown(error)(scope, receive, send)
            return
        who = address if caller is None else caller.signature
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            if message["type"] == "http.response.start" and message["status"] == 403:
                what = f"{scope['method']} {scope['path']}"
                self._refusals.note(who, what[:_SHOWN], "It was answered 403.")
            await send(message)

        state = {**scope.get("state", {}), "caller": caller}
        scope = {**scope, "state": state}
        if caller is None or caller.key_id is None:
            await self._app(scope, receive, noted)
            return
        with self._gate.holding(caller.key_id) as held:
            await self._app(scope, receive, noted)
        # An answer that was begun is cut off: its reader comes back, and is told then.
        if held.cancelled_caught and not begun:
            ended = Unauthenticated("This API key is not good any more.", HOW)
            await _unknown(ended)(scope, receive, send)


def _unknown(error: Unauthenticated) -> Response:
    how = {"WWW-Authenticate": "Bearer"}
    return problem(401, error.code, error.message, error.hint, headers=how)


def _key(headers: Headers) -> str | None:
    """The key that a request carries."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return value.strip()
    return headers.get("x-api-key") or None
