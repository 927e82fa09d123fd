"""`/hooks/NAME`: where other services call in.

Invariant: the proof of who asks is the request's signature, and no key; so the path is open, and
nothing is told there but what became of the request.
"""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Path, Request, Response

from gateway.hooks.formats import Challenge
from gateway.hooks.reception import Taken, receive
from gateway.http.access import open_to_all
from gateway.http.acting import confirmed
from gateway.http.parts import TheProcess, problems, shown

router = APIRouter(prefix="/hooks", tags=["webhooks"])

_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"type": "object"},
                "example": {"text": "The nightly build failed.", "user": "ci"},
            }
        },
    },
}


@router.post(
    "/{name}",
    dependencies=[open_to_all()],
    response_class=Response,
    responses={
        200: {"model": Taken, "description": "Taken in, and durable; or known, or ignored."},
        **problems(400, 401, 403, 404, 409, 413, 429, 504),
    },
    openapi_extra=_BODY,
)
async def take_delivery(
    name: Annotated[str, Path(description="The name of a webhook.", examples=["ci"])],
    process: TheProcess,
    request: Request,
) -> Response:
    """Take in what a service sends, signed as its kind asks for. A delivery that comes again is
    the same message; answers leave through the webhook's channel."""
    body = await request.body()
    headers = {key.lower(): value for key, value in request.headers.items()}
    work = receive(process.client, unquote(name), headers, body)
    taken = await confirmed(work, process.stopping)
    if isinstance(taken, Challenge):
        return Response(taken.challenge, media_type="text/plain")
    return shown(taken)
