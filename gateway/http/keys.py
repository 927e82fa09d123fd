"""API keys over HTTP: made, listed, looked at, revoked.

Invariant: the text of a key is in one answer, the one that tells it is made, which nothing on the
way may keep.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from gateway.http.access import needs
from gateway.http.acting import RequestKey
from gateway.http.paging import AtTime, Cursor, Offset, link_next, read, written
from gateway.http.parts import TheGateway, problems, shown
from gateway.http.tags import Tagged
from gateway.keys import DEFAULT_RATE, MAX_NAME, MAX_RATE, NewApiKey
from perdure.domain.access import Scope
from perdure.domain.labels import Label
from perdure.store.keys import ApiKey, ApiKeyList
from perdure.store.marks import Mark

router = APIRouter(
    prefix="/v1/keys", tags=["keys"], route_class=Tagged, dependencies=[needs(Scope.ADMIN)]
)

KeyIdInPath = Annotated[
    str, Path(description="The public id of a key.", examples=["a1b2c3d4e5f6"], max_length=64)
]


class WantedKey(BaseModel):
    """A key to be made."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"name": "support bot", "scopes": ["chat"], "tenant": "acme"}]
        },
    )

    name: str = Field(
        min_length=1, max_length=MAX_NAME, description="Who uses it; what it does is signed so."
    )
    scopes: tuple[Scope, ...] = Field(min_length=1, description="What it is good for.")
    tenant: str | None = Field(
        None, max_length=500, description="Whose sessions it sees; null is as far as yours does."
    )
    clearance: Label = Field(
        Label.PUBLIC, description="The highest label that it is told, and may send."
    )
    rate: int = Field(DEFAULT_RATE, ge=1, le=MAX_RATE, description="Requests a minute.")
    expires_at: datetime | None = Field(None, description="When it is over; null is never.")


class ApiKeyPage(ApiKeyList):
    """A page of keys, newest first. `next` is null on the last one."""

    next: str | None = None


@router.post("", status_code=201, response_model=NewApiKey, responses=problems(400, 409, 413, 415))
async def create_key(
    wanted: WantedKey, gateway: TheGateway, request_key: RequestKey = None
) -> Response:
    """Make a key that is good for no more than yours. Its `text` is shown this once.

    The same `Idempotency-Key` again makes no other key: it is a conflict that names the first one.
    If the answer with its text was lost, revoke that, and make another.
    """
    made = await gateway.client.keys.create(
        wanted.name,
        scopes=wanted.scopes,
        tenant=wanted.tenant,
        clearance=wanted.clearance,
        rate=wanted.rate,
        expires_at=wanted.expires_at,
        request_id=request_key,
    )
    return shown(made, 201, {"Cache-Control": "no-store", "Location": f"/v1/keys/{made.id}"})


@router.get("", responses=problems(400))
async def list_keys(
    gateway: TheGateway,
    request: Request,
    response: Response,
    every: Annotated[
        bool, Query(alias="all", description="Those that are revoked or over, too.")
    ] = False,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    offset: Offset = 0,
    cursor: Cursor = None,
) -> ApiKeyPage:
    """A page of the keys that you may see, without what is secret of them."""
    place = read(cursor, AtTime, "keys", offset)
    mark = Mark(time=place.time, id=place.id) if place else None
    found = await gateway.client.keys.list(every=every, limit=limit, offset=offset, mark=mark)
    cursor = None
    if len(found.keys) == limit:
        last = found.keys[-1]
        cursor = written(AtTime(of="keys", time=last.created_at, id=last.id))
    return ApiKeyPage(**found.model_dump(), next=link_next(request, response, cursor))


@router.get("/{key_id}", responses=problems(400, 404))
async def read_key(key_id: KeyIdInPath, gateway: TheGateway) -> ApiKey:
    """A key, without what is secret of it."""
    return await gateway.client.keys.get(key_id)


@router.delete("/{key_id}", responses=problems(400, 404))
async def revoke_key(key_id: KeyIdInPath, gateway: TheGateway) -> ApiKey:
    """Make a key good for nothing, at once and for ever. The second time changes nothing."""
    return await gateway.client.keys.revoke(key_id)
