"""Memory over HTTP: found, read, stored, pinned, forgotten, carried elsewhere.

Invariant: a memory's content never changes. Storing the same again is storing it once, and what
contradicts it is another one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from gateway.http.access import needs
from gateway.http.acting import RequestKey
from gateway.http.paging import AtTime, Cursor, Offset, link_next, read, written
from gateway.http.parts import TheGateway, problems, shown
from gateway.http.paths import EntryIdInPath
from gateway.http.tags import Tagged
from perdure.domain.access import Scope
from perdure.domain.labels import Label
from perdure.domain.memory import (
    MAX_RESULTS,
    MemoryEntry,
    MemoryPage,
    MemoryResults,
    MemoryStats,
    MemoryType,
    NewEntry,
    Origin,
    Sort,
    Stored,
    Trust,
    View,
)
from perdure.domain.messages import Frozen
from perdure.search import LONGEST_QUERY

router = APIRouter(prefix="/v1/memory", tags=["memory"], route_class=Tagged)

NDJSON = "application/x-ndjson"
_EXPORTED = (
    '{"id":"mem_9f86d081884c7d65","tenant":"default","agent":"main","path":"memory/team/deploys",'
    '"content":"Deploys go out on Tuesdays.","tags":["team"],"memory_type":"semantic",'
    '"trust":"learned","label":"PUBLIC","pinned":false,"created_at":"2026-01-01T12:00:00Z",'
    '"origin":"person","session_key":null,"message_ids":[],"superseded_by":null}\n'
)

_Word = Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\x00-\x1f]+$")]


class NewMemory(BaseModel):
    """Something to be remembered. A secret is refused."""

    model_config = ConfigDict(extra="forbid")

    content: str = Field(min_length=1, description="Up to 32,768 bytes of UTF-8.")
    tenant: _Word | None = Field(None, description="Whose memory; by default your own.")
    agent: _Word | None = Field(None, description="Who remembers; by default the default agent.")
    key: _Word | None = Field(
        None, description="Its path below `memory/`; another content under it supersedes this."
    )
    tags: tuple[_Word, ...] = Field((), max_length=50)
    memory_type: MemoryType = MemoryType.SEMANTIC
    trust: Trust = Trust.LEARNED
    label: Label = Label.PUBLIC
    pinned: bool = Field(
        False, strict=True, description="Whether it is in every context of its agent."
    )


class MemoryEntries(MemoryPage):
    """A page of memories by their time. `next` is null on the last one."""

    next: str | None = None


class Pinned(Frozen):
    """Whether a memory is pinned, and whether this changed it."""

    id: str
    pinned: bool
    changed: bool


async def _view(
    gateway: TheGateway,
    tenant: Annotated[_Word | None, Query(description="Whose memory; by default your own.")] = None,
    agent: Annotated[_Word | None, Query(description="Only of this agent.")] = None,
    tag: Annotated[
        list[_Word], Query(max_length=20, description="Only with all of these tags.")
    ] = [],  # noqa: B006 (FastAPI copies it)
    memory_type: MemoryType | None = None,
    trust: Trust | None = None,
) -> View:
    memory = gateway.client.memory
    return memory.view(tenant, agent=agent, tags=tuple(tag), memory_type=memory_type, trust=trust)


async def _tenant_view(
    gateway: TheGateway,
    tenant: Annotated[_Word | None, Query(description="Whose memory; by default your own.")] = None,
) -> View:
    return gateway.client.memory.view(tenant)


OfView = Annotated[View, Depends(_view)]
OfTenant = Annotated[View, Depends(_tenant_view)]


@router.get("/search", responses=problems(400), dependencies=[needs(Scope.READ)])
async def search_memory(
    gateway: TheGateway,
    view: OfView,
    q: Annotated[
        str,
        Query(
            max_length=LONGEST_QUERY,
            description='In your own words; `"a phrase"`, OR, NOT or `-word`, `( )` and `word*` '
            "must match.",
            examples=["how do we deploy"],
        ),
    ],
    limit: Annotated[int, Query(ge=1, le=MAX_RESULTS)] = 10,
) -> MemoryResults:
    """Memories by meaning and by word, the best first."""
    return await gateway.client.memory.search(view, q, limit=limit)


@router.get("/stats", responses=problems(400), dependencies=[needs(Scope.READ)])
async def read_memory_stats(gateway: TheGateway, view: OfView) -> MemoryStats:
    """What is remembered, in figures."""
    return await gateway.client.memory.stats(view)


@router.get(
    "/export",
    response_class=Response,
    responses={
        200: {
            "description": "One memory a line, as `perdure memory import` reads it.",
            "content": {NDJSON: {"schema": {"type": "string"}, "example": _EXPORTED}},
        },
        **problems(400),
    },
    dependencies=[needs(Scope.READ)],
)
async def export_memory(gateway: TheGateway, view: OfView) -> Response:
    """Every memory that matches, as JSON Lines, level by level, oldest first."""

    async def lines() -> AsyncIterator[str]:
        async for entry in gateway.client.memory.export(view):
            yield entry.model_dump_json() + "\n"

    return StreamingResponse(lines(), media_type=NDJSON)


@router.get("/entries", responses=problems(400), dependencies=[needs(Scope.READ)])
async def list_memory(
    gateway: TheGateway,
    request: Request,
    response: Response,
    view: OfView,
    sort: Sort = Sort.NEWEST,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    offset: Annotated[Offset, Query(le=100_000)] = 0,
    cursor: Cursor = None,
) -> MemoryEntries:
    """A page of memories by their time, superseded ones among them."""
    place = read(cursor, AtTime, "memory", offset)
    found = await gateway.client.memory.browse(
        view,
        offset=offset,
        limit=limit,
        sort=sort,
        after=(place.time, place.id) if place else None,
    )
    cursor = None
    if len(found.entries) == limit:
        last = found.entries[-1]
        cursor = written(AtTime(of="memory", time=last.created_at, id=last.id))
    return MemoryEntries(**found.model_dump(), next=link_next(request, response, cursor))


@router.post(
    "/entries",
    status_code=201,
    response_model=Stored,
    responses={
        200: {"model": Stored, "description": "It was remembered before; nothing was added."},
        **problems(400, 403, 404),
    },
    dependencies=[needs(Scope.STEER)],
)
async def store_memory(
    new: NewMemory, gateway: TheGateway, request_key: RequestKey = None
) -> Response:
    """Have an agent remember something.

    What is stored is named by what it says: sending again stores nothing more, with or without an
    `Idempotency-Key`.
    """
    memory = gateway.client.memory
    stored = await memory.store(
        NewEntry(
            tenant=memory.view(new.tenant).tenant,
            agent=memory.agent(new.agent),
            origin=Origin.PERSON,
            **new.model_dump(exclude={"tenant", "agent"}),
        )
    )
    return shown(stored, 201 if stored.new else 200)


@router.get("/entries/{entry_id}", responses=problems(400, 404), dependencies=[needs(Scope.READ)])
async def read_memory(entry_id: EntryIdInPath, gateway: TheGateway, view: OfTenant) -> MemoryEntry:
    """One memory, as a whole."""
    return await gateway.client.memory.get(view, entry_id)


@router.delete(
    "/entries/{entry_id}",
    status_code=204,
    response_class=Response,
    responses=problems(400, 404),
    dependencies=[needs(Scope.STEER)],
)
async def forget_memory(entry_id: EntryIdInPath, gateway: TheGateway, view: OfTenant) -> Response:
    """Forget a memory. It is gone from every file of the store."""
    memory = gateway.client.memory
    entry = await memory.get(view, entry_id)
    await memory.delete(view, [entry.id])
    return Response(status_code=204)


@router.put(
    "/entries/{entry_id}/pin", responses=problems(400, 404), dependencies=[needs(Scope.STEER)]
)
async def pin_memory(entry_id: EntryIdInPath, gateway: TheGateway, view: OfTenant) -> Pinned:
    """Have a memory in every context of its agent."""
    return await _pin(gateway, view, entry_id, pinned=True)


@router.delete(
    "/entries/{entry_id}/pin", responses=problems(400, 404), dependencies=[needs(Scope.STEER)]
)
async def unpin_memory(entry_id: EntryIdInPath, gateway: TheGateway, view: OfTenant) -> Pinned:
    """Have a memory in contexts only where it is looked for."""
    return await _pin(gateway, view, entry_id, pinned=False)


async def _pin(gateway: TheGateway, view: View, entry_id: str, *, pinned: bool) -> Pinned:
    memory = gateway.client.memory
    entry = await memory.get(view, entry_id)
    changed = await memory.pin(view, [entry.id], pinned=pinned)
    return Pinned(id=entry.id, pinned=pinned, changed=entry.id in changed)
