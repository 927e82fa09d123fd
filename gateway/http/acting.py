"""What acts: keys that make a request the same request, and the wait for its confirmation.

Invariant: what was asked of a session or a run happens once for one key, however often it is sent.
Where a thing can only be done once, the key changes nothing and is taken all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Request

from gateway.http import parts
from gateway.http.parts import while_wanted
from perdure.domain.errors import TimedOut
from perdure.domain.ids import check_message_id

Result = TypeVar("Result")


async def _request_key(
    idempotency_key: Annotated[
        str | None,
        Header(
            description="Your own id of this request: sending it again with the same key, after "
            "any failure, does nothing more. 1 to 120 printable ASCII characters.",
            examples=["3f0c9a52"],
        ),
    ] = None,
) -> str | None:
    # A prefix tells it from the ids of messages.
    return None if idempotency_key is None else check_message_id(f"req_{idempotency_key}")


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
