"""Search over HTTP: what was said, by its words, in one session or in all.

Invariant: what a caller may not read is not found, and moves no total and no score.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from gateway.http.access import needs
from gateway.http.paging import AtRank, Cursor, Offset, link_next, read, written
from gateway.http.parts import Gateway, KeyInPath, TheGateway, problems
from gateway.http.tags import Tagged
from perdure.domain.access import Scope
from perdure.domain.messages import Role
from perdure.search import LONGEST_QUERY
from perdure.store.search import Found

router = APIRouter(prefix="/v1", tags=["search"], route_class=Tagged)

Question = Annotated[
    str,
    Query(
        max_length=LONGEST_QUERY,
        description='Words, `"a phrase"`, OR, NOT or `-word`, `( )`, `word*`.',
        examples=["deploy -staging"],
    ),
]
OfRole = Annotated[Role | None, Query(description="Only of this speaker.")]
Limit = Annotated[int, Query(ge=1, le=200)]


class FoundPage(Found):
    """A page of what was found, best first. `next` is null on the last one."""

    next: str | None = None


@router.get("/search", responses=problems(400), dependencies=[needs(Scope.READ)])
async def search_everything(
    gateway: TheGateway,
    request: Request,
    response: Response,
    q: Question,
    role: OfRole = None,
    limit: Limit = 10,
    offset: Offset = 0,
    cursor: Cursor = None,
) -> FoundPage:
    """Messages of all sessions that match, best first. Unless `complete`, there are `total` at
    least."""
    found, following = await _page(gateway, q, None, role, limit, offset, cursor)
    return FoundPage(**found.model_dump(), next=link_next(request, response, following))


@router.get(
    "/sessions/{key}/search", responses=problems(400, 404), dependencies=[needs(Scope.READ)]
)
async def search_session(
    key: KeyInPath,
    gateway: TheGateway,
    request: Request,
    response: Response,
    q: Question,
    role: OfRole = None,
    limit: Limit = 10,
    offset: Offset = 0,
    cursor: Cursor = None,
) -> FoundPage:
    """Messages of one session that match, best first."""
    found, following = await _page(gateway, q, key, role, limit, offset, cursor)
    return FoundPage(**found.model_dump(), next=link_next(request, response, following))


async def _page(
    gateway: Gateway,
    q: str,
    key: str | None,
    role: Role | None,
    limit: int,
    offset: int,
    cursor: str | None,
) -> tuple[Found, str | None]:
    """A page, and the cursor of the next one. What is added after the first page is on none."""
    place = read(cursor, AtRank, "search", offset)
    if place is None:
        place = AtRank(until=await gateway.client.store.search.newest(), offset=offset)
    found = await gateway.client.search(
        q, session_key=key, role=role, limit=limit, offset=place.offset, until=place.until
    )
    seen = place.offset + len(found.hits)
    if len(found.hits) < limit or (found.complete and seen >= found.total):
        return found, None
    return found, written(AtRank(until=place.until, offset=seen))
