"""Entity tags: what was read before is not sent again, and what changed since is not overwritten.

Invariant: two answers with the same tag are the same, to their last byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Header, Request, Response
from fastapi.routing import APIRoute

#: Half of a SHA-256 in hexadecimal: nobody meets two answers that share it.
_LENGTH = 32

IfMatch = Annotated[
    str | None,
    Header(
        description="The `ETag` of what you decided by. If it has changed since, nothing happens, "
        "and the answer is 412.",
        examples=['"5f2b6c0d5f2b6c0d5f2b6c0d5f2b6c0d"'],
    ),
]


class Tagged(APIRoute):
    """A route whose answers to GET carry an `ETag`, and are 304 to who has them already."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with its answer tagged."""
        handle = super().get_route_handler()

        async def tagged(request: Request) -> Response:
            response = await handle(request)
            if request.method != "GET" or response.status_code != 200 or not _is_whole(response):
                return response
            tag = tag_of(bytes(response.body))
            response.headers["ETag"] = tag
            # Never shown again without asking: what a session says is not for caches to keep.
            response.headers["Cache-Control"] = "private, no-cache"
            if not matches(request.headers.get("if-none-match"), tag):
                return response
            kept = {"etag", "cache-control", "link"}
            headers = {name: value for name, value in response.headers.items() if name in kept}
            return Response(status_code=304, headers=headers)

        return tagged


def tag_of(body: bytes) -> str:
    """The entity tag of an answer."""
    return f'"{hashlib.sha256(body).hexdigest()[:_LENGTH]}"'


def matches(condition: str | None, tag: str) -> bool:
    """Whether an `If-Match` or `If-None-Match` names `tag`: RFC 9110, 13.1; compared weakly, since
    a proxy that compresses an answer makes its tag weak."""
    if condition is None:
        return False
    named = [one.strip().removeprefix("W/") for one in condition.split(",")]
    return tag in named or named == ["*"]


def _is_whole(response: Response) -> bool:
    """Whether its body is there, and not to be streamed."""
    return isinstance(getattr(response, "body", None), bytes | memoryview)
