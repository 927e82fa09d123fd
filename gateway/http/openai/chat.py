"""`/v1/chat/completions` and `/v1/models`: a turn as a chat completion, agents as models.

Invariant: who hangs up stops listening and nothing else; the turn goes on, and asking again with
the same id finds its answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from fastapi import APIRouter, Header, Path, Request, Response
from pydantic import Field
from sse_starlette import ServerSentEvent

from gateway.http.access import needs
from gateway.http.openai import requests
from gateway.http.openai.answers import (
    Chunk,
    ChunkChoice,
    ChunkDelta,
    Completion,
    CompletionUsage,
    completion_id,
    finish_of,
)
from gateway.http.openai.asking import EventStream, Sent, check_model, send
from gateway.http.openai.refusals import ErrorBody, OpenAIRoute, detail_of
from gateway.http.openai.requests import ChatRequest
from gateway.http.openai.sessions import SESSION_HEADER
from gateway.http.openai.speech import BREAK, Speech
from gateway.http.parts import TheGateway, shown
from gateway.http.problems import STATUS
from perdure.domain.access import Scope
from perdure.domain.errors import PerdureError
from perdure.domain.messages import Frozen

router = APIRouter(prefix="/v1", tags=["openai"], route_class=OpenAIRoute)

DONE = "[DONE]"

#: The refusals of OpenAI's endpoints, for the documentation.
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody} for status in (400, 401, 403, 404, 409, 413, 422, 429, 500, 503)
}

SessionHeader = Annotated[
    str | None,
    Header(
        alias=SESSION_HEADER,
        description="The session that goes on; only the newest message is taken then.",
        examples=["default:bob~thread~42"],
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(description="The message's id for ever: sending again with it is safe."),
]


class Model(Frozen):
    """An agent."""

    id: str = Field(examples=["main"])
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: Literal["perdure"] = "perdure"


class ModelList(Frozen):
    """The configured agents, by name."""

    object: Literal["list"] = "list"
    data: tuple[Model, ...]


@router.post(
    "/chat/completions",
    dependencies=[needs(Scope.CHAT)],
    response_class=Response,
    responses={
        200: {
            "model": Completion,
            "description": "The turn's answer. With `stream`, its chunks as server-sent events, "
            "`[DONE]` at the end.",
            "headers": {SESSION_HEADER: {"schema": {"type": "string"}}},
        },
        **REFUSALS,
    },
)
async def create_completion(
    body: ChatRequest,
    gateway: TheGateway,
    request: Request,
    session: SessionHeader = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Send the newest message to a session and have the turn that answers it.

    Without a session or a `user`, the messages given begin a new one, named in the answer.
    """
    stream = bool(body.stream)
    asked = requests.chat(body)
    sent = await send(
        gateway, request, model=body.model, user=body.user, asked=asked, stream=stream
    )
    if stream:
        usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        return EventStream(_chunks(sent, usage), sent.headers)
    result = await sent.result(request)
    return shown(Completion.of(result, sent.model, sent.created), headers=sent.headers)


@router.get("/models", dependencies=[needs(Scope.CHAT, Scope.READ)], responses=REFUSALS)
async def list_models(gateway: TheGateway) -> ModelList:
    """The agents that can be asked."""
    names = sorted(gateway.client.settings.agents)
    return ModelList(data=tuple(Model(id=name) for name in names))


@router.get("/models/{model}", dependencies=[needs(Scope.CHAT, Scope.READ)], responses=REFUSALS)
async def read_model(
    model: Annotated[str, Path(description="The name of an agent.", examples=["main"])],
    gateway: TheGateway,
) -> Model:
    """One agent."""
    check_model(gateway.client.settings, unquote(model))
    return Model(id=unquote(model))


async def _chunks(sent: Sent, usage: bool) -> AsyncIterator[ServerSentEvent]:
    def chunk(choice: ChunkChoice | None, used: CompletionUsage | None = None) -> ServerSentEvent:
        body = Chunk(
            id=completion_id(sent.message_id),
            created=sent.created,
            model=sent.model,
            choices=() if choice is None else (choice,),
            usage=used,
        )
        return ServerSentEvent(body.model_dump_json(), sep="\n")

    yield chunk(ChunkChoice(delta=ChunkDelta(role="assistant", content="")))
    try:
        async with aclosing(sent.heard()) as heard:
            async for item in heard:
                if isinstance(item, Speech):
                    text = f"{BREAK}{item.text}" if item.anew else item.text
                    yield chunk(ChunkChoice(delta=ChunkDelta(content=text)))
                    continue
                yield chunk(ChunkChoice(finish_reason=finish_of(item.result)))
                if usage:
                    yield chunk(None, CompletionUsage.of(item.result))
                yield ServerSentEvent(DONE, sep="\n")
    except PerdureError as error:
        detail = detail_of(error, STATUS[error.code])
        yield ServerSentEvent(ErrorBody(error=detail).model_dump_json(), sep="\n")
