"""What acts: keys that make a request the same request, and the wait for its confirmation.

Invariant: what was asked of a session or a run happens once for one key, however often it is sent.
Where a thing can only be done once, the key changes nothing and is taken all the same.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Request

from gateway.http import parts
from gateway.http.access import caller_of
from gateway.http.parts import while_wanted
from perdure.domain.errors import InvalidArgument, TimedOut

Result = TypeVar("Result")

_KEY = re.compile(r"[\x21-\x7e]{1,255}")


async def _request_key(
    request: Request,
    idempotency_key: Annotated[
        str | None,
        Header(
            description="Your own id of this request: sending it again with the same key, after "
            "any failure, does nothing more. 1 to 255 printable ASCII characters.",
            examples=["3f0c9a52"],
        ),
    ] = None,
) -> str | None:
    if idempotency_key is None:
        return None
    if not _KEY.fullmatch(idempotency_key):
        raise InvalidArgument(
            "The Idempotency-Key cannot be one.",
            "Send 1 to 255 printable ASCII characters without spaces.",
        )
    # Of two callers with the same key each means a request of their own.
    whose = f"{caller_of(request.scope).identity}\n{idempotency_key}"
    return f"req_{hashlib.sha256(whose.encode()).hexdigest()[:32]}"


RequestKey = Annotated[str | None, Depends(_request_key)]


async def confirmed(
    work: Coroutine[Any, Any, Result], stopping: asyncio.Event, caller: Request | None = None
) -> Result:
    """What came of an act, once it is confirmed. With a `caller`, it is waited for as long as they
    listen.

    Raises:
        TimedOut: when it was not within `parts.PATIENCE` seconds.
        Unavailable: when the gateway stops.
    """
    within = parts.PATIENCE
    try:
        return await while_wanted(work, stopping, caller=caller, within=within)
    except TimeoutError as error:
        raise TimedOut(
            f"Not done within {within:g} s. If it was accepted, it will still happen.",
            "The session's events tell when. Asking again with the same key is safe.",
        ) from error
