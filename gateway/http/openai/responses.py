"""`/v1/responses`: a turn as a response, streamed or not, and found again by its id.

Invariant: a response's id names the session and the message, so that it is found, and gone on from,
at any gateway and at any time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from sse_starlette import ServerSentEvent

from gateway.http.access import needs
from gateway.http.openai import requests
from gateway.http.openai.answers import finish_of
from gateway.http.openai.asking import EventStream, Sent, send
from gateway.http.openai.chat import REFUSALS, IdempotencyKey, SessionHeader
from gateway.http.openai.outputs import (
    OutputMessage,
    OutputText,
    ResponseBody,
    ResponseEvent,
    item_id,
)
from gateway.http.openai.refusals import BadRequest, OpenAIRoute
from gateway.http.openai.requests import ResponseRequest
from gateway.http.openai.sessions import SESSION_HEADER, named_by, response_id
from gateway.http.openai.speech import Anew, Ended, Speech
from gateway.http.parts import TheGateway, shown
from perdure.domain.access import Scope
from perdure.domain.errors import NotFound, PerdureError
from perdure.store.transcript import TurnResult

router = APIRouter(prefix="/v1/responses", tags=["openai"], route_class=OpenAIRoute)


@router.post(
    "",
    dependencies=[needs(Scope.CHAT)],
    response_class=Response,
    responses={
        200: {
            "model": ResponseBody,
            "description": "The turn's answer, or how it failed. With `stream`, its events.",
            "headers": {SESSION_HEADER: {"schema": {"type": "string"}}},
        },
        **REFUSALS,
    },
)
async def create_response(
    body: ResponseRequest,
    gateway: TheGateway,
    request: Request,
    session: SessionHeader = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Send the newest message to a session and have the turn that answers it."""
    asked = requests.response(body)
    previous = None if body.previous_response_id is None else named_by(body.previous_response_id)
    stream = bool(body.stream)
    sent = await send(
        gateway,
        request,
        model=body.model,
        user=body.user,
        asked=asked,
        stream=stream,
        previous=previous,
    )
    begun = ResponseBody(
        id=response_id(sent.session_key, sent.message_id),
        created_at=sent.created,
        status="in_progress",
        model=sent.model,
        previous_response_id=body.previous_response_id,
        instructions=body.instructions,
        metadata=body.metadata or {},
        user=body.user,
        temperature=body.temperature,
        top_p=body.top_p,
    )
    if stream:
        return EventStream(_events(sent, begun), sent.headers)
    result = await sent.result(request)
    finish_of(result)  # a turn without an answer is refused with a status, as clients expect
    return shown(begun.ended(result), headers=sent.headers)


@router.get("/{response_id}", dependencies=[needs(Scope.CHAT, Scope.READ)], responses=REFUSALS)
async def read_response(
    response_id: Annotated[str, Path(description="The id of a response.")], gateway: TheGateway
) -> ResponseBody:
    """The turn of a response, so far or as it ended."""
    try:
        session_key, message_id = named_by(response_id, "response_id")
    except BadRequest as error:
        raise NotFound(error.message, error.hint) from None
    status = await gateway.client.status(session_key)
    result = await gateway.client.turn(session_key, message_id)
    begun = ResponseBody(
        id=response_id,
        created_at=int(status.started_at.timestamp()),
        status="in_progress",
        model=status.agent,
    )
    return begun if result is None else begun.ended(result)


async def _events(sent: Sent, begun: ResponseBody) -> AsyncIterator[ServerSentEvent]:
    told = _Told(sent, begun)
    for event in told.beginning():
        yield event
    try:
        async with aclosing(sent.heard()) as heard:
            async for item in heard:
                for event in told.item(item):
                    yield event
    except PerdureError as error:
        yield told.event("error", code=str(error.code), message=str(error))


class _Told:
    """A response as it was told so far: the items that are over, and the one under way."""

    def __init__(self, sent: Sent, begun: ResponseBody) -> None:
        self._sent = sent
        self._begun = begun
        self._number = 0
        self._items: list[OutputMessage] = []
        self._text: str | None = None

    def event(self, kind: str, **fields: object) -> ServerSentEvent:
        body = ResponseEvent.model_validate(
            {"type": kind, "sequence_number": self._number, **fields}
        )
        self._number += 1
        return ServerSentEvent(
            body.model_dump_json(include=body.model_fields_set), event=kind, sep="\n"
        )

    def beginning(self) -> Iterator[ServerSentEvent]:
        yield self.event("response.created", response=self._begun)
        yield self.event("response.in_progress", response=self._begun)

    def item(self, item: Speech | Ended) -> Iterator[ServerSentEvent]:
        return self.more(item) if isinstance(item, Speech) else self.ending(item.result)

    def more(self, speech: Speech) -> Iterator[ServerSentEvent]:
        if speech.anew is not None:
            yield from self._over("incomplete" if speech.anew is Anew.VOID else "completed")
        if self._text is None:
            self._text = ""
            item = OutputMessage(id=self._id, status="in_progress")
            yield self._of_output("response.output_item.added", item=item)
            yield self._of_part("response.content_part.added", part=OutputText(text=""))
        self._text += speech.text
        yield self._of_part("response.output_text.delta", delta=speech.text, logprobs=())

    def ending(self, result: TurnResult) -> Iterator[ServerSentEvent]:
        ended = self._begun.ended(result)
        answered = ended.status in ("completed", "incomplete")
        status = "completed" if ended.status == "completed" else "incomplete"
        yield from self._over(status, phase="final_answer" if answered else "commentary")
        # Read from the transcript, an answer is the one item that it has; streamed, it is the last.
        ended = self._begun.ended(result, tuple(self._items))
        yield self.event(f"response.{ended.status}", response=ended)

    def _over(self, status: str, phase: str = "commentary") -> Iterator[ServerSentEvent]:
        if self._text is None:
            return
        part = OutputText(text=self._text)
        item = OutputMessage.model_validate(
            {"id": self._id, "status": status, "content": (part,), "phase": phase}
        )
        yield self._of_part("response.output_text.done", text=self._text, logprobs=())
        yield self._of_part("response.content_part.done", part=part)
        yield self._of_output("response.output_item.done", item=item)
        self._items.append(item)
        self._text = None

    @property
    def _id(self) -> str:
        return item_id(self._sent.message_id, len(self._items))

    def _of_output(self, kind: str, **fields: object) -> ServerSentEvent:
        return self.event(kind, output_index=len(self._items), **fields)

    def _of_part(self, kind: str, **fields: object) -> ServerSentEvent:
        return self._of_output(kind, item_id=self._id, content_index=0, **fields)
