"""Search over HTTP: what was said, by its words, in one session or in all.

Invariant: what a caller may not read is not found, and moves no total and no score.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from gateway.http.access import needs
from gateway.http.paging import Offset
from gateway.http.parts import KeyInPath, TheGateway, problems
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


@router.get("/search", responses=problems(400), dependencies=[needs(Scope.READ)])
async def search_everything(
    gateway: TheGateway, q: Question, role: OfRole = None, limit: Limit = 10, offset: Offset = 0
) -> Found:
    """Messages of all sessions that match, best first. Unless `complete`, there are `total` at
    least."""
    return await gateway.client.search(q, role=role, limit=limit, offset=offset)


@router.get(
    "/sessions/{key}/search", responses=problems(400, 404), dependencies=[needs(Scope.READ)]
)
async def search_session(
    key: KeyInPath,
    gateway: TheGateway,
    q: Question,
    role: OfRole = None,
    limit: Limit = 10,
    offset: Offset = 0,
) -> Found:
    """Messages of one session that match, best first."""
    return await gateway.client.search(q, session_key=key, role=role, limit=limit, offset=offset)
