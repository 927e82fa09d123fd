"""Messages over HTTP: send, wait for the answer, look at it later, read the history.

Invariant: an admitted message is not told as an error because the wait for its answer ended; the
caller learns where the answer will be. Only a reset, which discards it, makes it not found.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from gateway.http import parts
from gateway.http.access import needs
from gateway.http.paging import AtSeq, Cursor, Offset, link_next, read, written
from gateway.http.parts import (
    LONGEST_WAIT,
    Gateway,
    KeyInPath,
    MessageIdInPath,
    TheGateway,
    problems,
    shown,
    turn_path,
    while_wanted,
)
from gateway.http.problems import refused
from gateway.http.tags import Tagged
from perdure.domain.access import Scope
from perdure.domain.envelopes import Ticket
from perdure.domain.errors import LimitExceeded, TimedOut, Unavailable
from perdure.domain.ids import check_message_id, new_message_id
from perdure.domain.keys import SessionKey
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen
from perdure.store.transcript import HistoryPage, TurnResult

router = APIRouter(prefix="/v1/sessions/{key}", tags=["messages"], route_class=Tagged)


class NewMessage(BaseModel):
    """A message to a session. The first one starts the session."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"text": "Read the report and tell me what is missing."},
                {"text": "/say hello", "agent": "main", "wait": True, "timeout": 30},
            ]
        },
    )

    text: str = Field(description="Up to `limits.message_bytes` bytes of UTF-8.")
    agent: str | None = Field(None, description="Who answers, in a new session.")
    label: Label = Field(Label.PUBLIC, description="The level of what the text tells.")
    wait: bool = Field(False, strict=True, description="Whether to wait for the end of the turn.")
    timeout: float = Field(
        60,
        ge=0,
        le=LONGEST_WAIT,
        allow_inf_nan=False,
        strict=True,
        description="The longest wait, in seconds.",
    )


class Admission(Frozen):
    """A message that was durably admitted and will be answered once.

    `position` counts the messages that are answered before it; `duplicate` says that this id had
    been sent before and nothing was added. `delivered_no_reply`: the wait ended before the turn.
    """

    message_id: str = Field(examples=["msg_01KB7ZJ3T9"])
    session_key: str = Field(examples=["default:bob"])
    position: int = 0
    duplicate: bool = False
    status: Literal["admitted", "delivered_no_reply"]


class MessagePage(HistoryPage):
    """A page of a transcript: the newest page first, each page in order. `next` is the page of
    what was said before, null on the last one."""

    next: str | None = None


_ACCEPTED: dict[int | str, dict[str, Any]] = {
    200: {"model": TurnResult, "description": "The turn has ended; `state` tells how."},
    202: {
        "model": Admission,
        "description": "Admitted. `Location` is where the answer will be.",
        "headers": {"Location": {"schema": {"type": "string"}}},
    },
}


@router.post(
    "/messages",
    status_code=202,
    response_class=Response,
    responses={**_ACCEPTED, **problems(400, 403, 404, 409, 429)},
    dependencies=[needs(Scope.CHAT)],
)
async def send_message(
    key: KeyInPath,
    message: NewMessage,
    gateway: TheGateway,
    request: Request,
    idempotency_key: Annotated[
        str | None,
        Header(
            description="The message's id for ever. Sending again with it is safe after any "
            "failure; another text under the same id is a conflict.",
            examples=["order-4711"],
        ),
    ] = None,
) -> Response:
    """Send a message; 202 as soon as it is durable, or 200 with the turn's result if you wait."""
    client = gateway.client
    message_id = new_message_id() if idempotency_key is None else idempotency_key
    sending = client.send(
        key, message.text, agent=message.agent, message_id=message_id, label=message.label
    )
    try:
        # Not given up when the caller hangs up: what reached us is to be admitted.
        ticket = await while_wanted(sending, gateway.stopping, within=parts.PATIENCE)
    except TimeoutError as error:
        raise Unavailable(
            f"The message {message_id} is not confirmed: Temporal or its workers are away.",
            "It may be taken all the same. Send it again with this id as its Idempotency-Key.",
        ) from error
    except LimitExceeded as error:
        # The one limit that waiting does not help against.
        too_large = len(message.text.encode()) > client.settings.limits.message_bytes
        return refused(error, 413 if too_large else None)
    if message.wait:
        result = await _answer(gateway, request, key, ticket.message_id, message.timeout)
        if result is not None:
            return shown(result)
        return _admitted(ticket, "delivered_no_reply")
    return _admitted(ticket, "admitted")


@router.get("/messages", responses=problems(400, 404), dependencies=[needs(Scope.READ)])
async def read_history(
    key: KeyInPath,
    gateway: TheGateway,
    request: Request,
    response: Response,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    offset: Offset = 0,
    cursor: Cursor = None,
) -> MessagePage:
    """A page of the transcript: the newest page first, each page in order."""
    place = read(cursor, AtSeq, "messages", offset)
    found = await gateway.client.history(
        key, limit=limit, offset=offset, before=place.seq if place else None
    )
    cursor = written(AtSeq(of="messages", seq=found.messages[0].seq)) if found.has_more else None
    return MessagePage(**found.model_dump(), next=link_next(request, response, cursor))


@router.get(
    "/turns/{message_id}",
    response_class=Response,
    responses={
        200: {"model": TurnResult, "description": "The turn so far, or its result."},
        202: {"model": Admission, "description": "The message still waits for its turn."},
        **problems(400, 404),
    },
    dependencies=[needs(Scope.CHAT, Scope.READ)],
)
async def read_turn(
    key: KeyInPath,
    message_id: MessageIdInPath,
    gateway: TheGateway,
    request: Request,
    timeout: Annotated[
        float,
        Query(
            ge=0,
            le=LONGEST_WAIT,
            allow_inf_nan=False,
            description="Wait so many seconds for the end of the turn.",
        ),
    ] = 0,
) -> Response:
    """What the turn that answers a message came to so far."""
    SessionKey.parse(key)
    check_message_id(message_id)
    await gateway.client.turn(key, message_id)
    result = await _answer(gateway, request, key, message_id, timeout) if timeout else None
    result = result or await gateway.client.turn(key, message_id)
    if result is None:
        waiting = Ticket(message_id=message_id, session_key=key, duplicate=True)
        return _admitted(waiting, "delivered_no_reply")
    return shown(result)


async def _answer(
    gateway: Gateway, request: Request, key: str, message_id: str, timeout: float
) -> TurnResult | None:
    """The result of the turn, or None when there is none within `timeout` seconds."""
    work = gateway.client.wait(key, message_id, timeout=timeout)
    try:
        return await while_wanted(work, gateway.stopping, caller=request)
    except (TimedOut, Unavailable):
        return None


def _admitted(ticket: Ticket, status: Literal["admitted", "delivered_no_reply"]) -> Response:
    body = Admission(**ticket.model_dump(), status=status)
    location = turn_path(ticket.session_key, ticket.message_id)
    return shown(body, 202, {"Location": location})
