"""What happens before a request is routed: from where it may come, how much, under which path.

Invariant: no web page reaches the gateway that was not named, whoever visits it. A body is never in
memory beyond its limit.
"""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.http.problems import TOO_LARGE, problem
from perdure.domain.errors import Code
from perdure.domain.limits import Limits

#: What JSON escapes make of a text at worst: three times its UTF-8 bytes for anything printable,
#: as in `é` written `\\u00e9`.
_ESCAPED = 3
#: For the rest of the body.
_FIELDS = 65_536


class KnownPlaces:
    """Refuses requests meant for another host (DNS rebinding) and those of foreign web pages.

    Args:
        app: what to guard.
        hosts: names under which this server may be called, without ports.
        origins: of web pages that may call it, beside its own.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str], origins: Collection[str]) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host, origin = headers.get("host", ""), headers.get("origin")
            if _name(host) not in self._hosts:
                detail = "The Host header does not name this gateway."
                hint = f"Call it as one of {', '.join(sorted(self._hosts))}."
            elif origin not in (None, f"{scope['scheme']}://{host}", *self._origins):
                detail, hint = "Web pages of other origins may not call the gateway.", ""
            else:
                await self._app(scope, receive, send)
                return
            await problem(403, Code.DENIED, detail, hint)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class BodyLimit:
    """Refuses a body before it is read when it says its size, else as soon as it is too large.

    Args:
        app: what to guard.
        limits: the settings' limits. A body may be so large that every message within
            `message_bytes` fits, however its text is escaped.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app = app
        self._max_bytes = limits.message_bytes * _ESCAPED + _FIELDS
        self._detail = (
            f"The body has more than {self._max_bytes} bytes, and limits.message_bytes is "
            f"{limits.message_bytes}"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "0")
        if not declared.isdecimal() or int(declared) > self._max_bytes:
            # The rest is read and thrown away by the server, so that the caller gets to read this.
            await problem(413, Code.LIMIT_EXCEEDED, f"{self._detail}.", TOO_LARGE)(
                scope, receive, send
            )
            return
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise HTTPException(413, self._detail)
            return message

        await self._app(scope, limited, send)


class RawPath:
    """Routes by the path as it was sent, so that a `%2F` stays within its segment."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "path": scope["raw_path"].decode("latin-1")}
        await self._app(scope, receive, send)


def _name(host: str) -> str:
    """The name in a Host header, without its port; empty when there is none."""
    try:
        parts = urlsplit(f"//{host}")
        parts.port  # noqa: B018 (a port that is no number raises)
    except ValueError:
        return ""
    if parts.username is not None or parts.path or parts.query or parts.fragment:
        return ""
    name = parts.hostname or ""
    return f"[{name}]" if ":" in name else name
