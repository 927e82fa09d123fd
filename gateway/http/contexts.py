"""Contexts over HTTP: what a model is given of a session, and what its summaries stand for.

Invariant: nothing is changed, and every word that was ever said can be read, however often it was
summarised.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from gateway.contexts import ContextSummary, ContextTree, SeenContext
from gateway.http.access import needs
from gateway.http.paging import AtSeq, Cursor, link_next, read, written
from gateway.http.parts import KeyInPath, TheGateway, problems
from gateway.http.paths import NodeIdInPath
from gateway.http.tags import Tagged
from perdure.domain.access import Scope
from perdure.domain.messages import Frozen
from perdure.search import LONGEST_QUERY
from perdure.store.context_search import ContextFound
from perdure.store.transcript import HistoryMessage

router = APIRouter(prefix="/v1/sessions/{key}/context", tags=["context"], route_class=Tagged)

#: Turns are counted in 32 bits.
_LAST_TURN = 2**31 - 1


class ExpandedPage(Frozen):
    """A page of the messages below a summary, in order. `expected` is how many there are to be
    in all; `next` is null on the last page."""

    id: str
    messages: tuple[HistoryMessage, ...]
    expected: int
    next: str | None = None


@router.get("", responses=problems(400, 404), dependencies=[needs(Scope.READ)])
async def read_context(key: KeyInPath, gateway: TheGateway) -> ContextTree:
    """What the next turn of a session sees, with the DAG of summaries below it."""
    return await gateway.client.context.tree(key)


@router.get("/search", responses=problems(400, 404), dependencies=[needs(Scope.READ)])
async def search_context(
    key: KeyInPath,
    gateway: TheGateway,
    q: Annotated[
        str, Query(max_length=LONGEST_QUERY, description="Words to find.", examples=["deploy"])
    ],
    limit: Annotated[int, Query(ge=1, le=50)] = 10,
) -> ContextFound:
    """Messages and summaries of a session's context that match, best first."""
    return await gateway.client.context.search(key, q, limit=limit)


@router.get("/turns/{turn}", responses=problems(400, 404), dependencies=[needs(Scope.READ)])
async def read_seen(
    key: KeyInPath,
    turn: Annotated[
        int, Path(ge=1, le=_LAST_TURN, description="A turn, counted from 1.", examples=[3])
    ],
    gateway: TheGateway,
) -> SeenContext:
    """What the model was given for the last answer of a turn, or is given so far."""
    return await gateway.client.context.at(key, turn)


@router.get("/nodes/{node_id}", responses=problems(400, 404), dependencies=[needs(Scope.READ)])
async def read_node(key: KeyInPath, node_id: NodeIdInPath, gateway: TheGateway) -> ContextSummary:
    """A summary with its words, and what it was made of."""
    return await gateway.client.context.summary(key, node_id)


@router.get(
    "/nodes/{node_id}/messages", responses=problems(400, 404), dependencies=[needs(Scope.READ)]
)
async def expand_node(
    key: KeyInPath,
    node_id: NodeIdInPath,
    gateway: TheGateway,
    request: Request,
    response: Response,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    cursor: Cursor = None,
) -> ExpandedPage:
    """The messages below a summary, or the one message of that id, word for word."""
    place = read(cursor, AtSeq, "expansion")
    found = await gateway.client.context.expand(key, node_id, after=place.seq if place else 0)
    messages: list[HistoryMessage] = []
    more = False
    async for message in found.messages:
        if more := len(messages) == limit:
            break
        messages.append(message)
    cursor = written(AtSeq(of="expansion", seq=messages[-1].seq)) if more else None
    return ExpandedPage(
        id=found.id,
        messages=tuple(messages),
        expected=found.expected,
        next=link_next(request, response, cursor),
    )
