"""Schedules over HTTP: what is done again and again, added, looked at, paused and removed.

Invariant: every endpoint is one call of `SessionClient.schedules`; a tenant that is not the
caller's has no schedules for them.
"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from gateway.http.access import needs
from gateway.http.acting import RequestKey, confirmed
from gateway.http.paging import AtName, Cursor, Offset, link_next, read, written
from gateway.http.parts import TheGateway, problems
from gateway.http.tags import Tagged
from gateway.schedule_views import ScheduleList, ScheduleView
from gateway.scheduling import CATCH_UP, PAGE
from perdure.domain.access import Scope
from perdure.domain.labels import Label
from perdure.domain.schedules import Overlap, ScheduleKind

router = APIRouter(prefix="/v1/schedules", tags=["schedules"], route_class=Tagged)


class AddSchedule(BaseModel):
    """A schedule to be added: what, where, and when."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(examples=["standup"])
    session_key: str = Field(examples=["default:bob"])
    text: str = Field(description="The message, or the task of the sub-agent.")
    kind: ScheduleKind = ScheduleKind.MESSAGE
    agent: str | None = Field(
        None, description="Who answers in a new session, or which agent is spawned."
    )
    cron: str | None = Field(None, max_length=256, examples=["0 9 * * MON-FRI"])
    every: float | None = Field(None, allow_inf_nan=False, description="Seconds between two times.")
    timezone: str = Field("UTC", max_length=64, examples=["Europe/Berlin"])
    label: Label = Field(Label.PUBLIC, description="The level of the text.")
    overlap: Overlap = Field(
        Overlap.SKIP, description="What happens while an earlier message still waits."
    )
    catch_up: float = Field(
        CATCH_UP.total_seconds(),
        allow_inf_nan=False,
        description="How old a missed time may be, in seconds, that is made up for.",
    )
    paused: bool = False


class SchedulePage(ScheduleList):
    """A page of schedules, by tenant and name. `next` is null on the last one."""

    next: str | None = None


async def _name(
    name: Annotated[str, Path(description="The name of a schedule.", examples=["standup"])],
) -> str:
    return unquote(name)


Name = Annotated[str, Depends(_name)]
Tenant = Annotated[
    str | None, Query(max_length=512, description="Whose; else the caller's own, or `default`.")
]


@router.post(
    "", status_code=201, responses=problems(400, 404, 409), dependencies=[needs(Scope.STEER)]
)
async def add_schedule(
    schedule: AddSchedule, gateway: TheGateway, request_key: RequestKey = None
) -> ScheduleView:
    """Have a message sent, or a sub-agent spawned, again and again.

    A name is there once: sending again adds nothing, with or without an `Idempotency-Key`, and is
    told as a conflict.
    """
    adding = gateway.client.schedules.add(**schedule.model_dump())
    return await confirmed(adding, gateway.stopping)


@router.get("", responses=problems(400), dependencies=[needs(Scope.STEER, Scope.READ)])
async def list_schedules(
    gateway: TheGateway,
    request: Request,
    response: Response,
    tenant: Annotated[
        str | None, Query(max_length=512, description="Whose; else all that you may see.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE)] = 50,
    offset: Offset = 0,
    cursor: Cursor = None,
) -> SchedulePage:
    """A page of schedules, by tenant and name, with their next times."""
    place = read(cursor, AtName, "schedules", offset)
    found = await gateway.client.schedules.list(
        tenant=tenant,
        limit=limit,
        offset=offset,
        after=(place.tenant, place.id) if place else None,
    )
    cursor = None
    if len(found.schedules) == limit:
        last = found.schedules[-1]
        cursor = written(AtName(tenant=last.tenant, id=last.name))
    return SchedulePage(**found.model_dump(), next=link_next(request, response, cursor))


@router.get("/{name}", responses=problems(404), dependencies=[needs(Scope.STEER, Scope.READ)])
async def read_schedule(name: Name, gateway: TheGateway, tenant: Tenant = None) -> ScheduleView:
    """One schedule, with its next times."""
    return await gateway.client.schedules.get(name, tenant=tenant)


@router.post("/{name}/pause", responses=problems(404, 504), dependencies=[needs(Scope.STEER)])
async def pause_schedule(
    name: Name,
    gateway: TheGateway,
    request: Request,
    tenant: Tenant = None,
    request_key: RequestKey = None,
) -> ScheduleView:
    """Let its times pass until it is resumed.

    Sending again changes nothing, with or without an `Idempotency-Key`.
    """
    pausing = gateway.client.schedules.pause(name, tenant=tenant)
    return await confirmed(pausing, gateway.stopping, request)


@router.post("/{name}/resume", responses=problems(404, 504), dependencies=[needs(Scope.STEER)])
async def resume_schedule(
    name: Name,
    gateway: TheGateway,
    request: Request,
    tenant: Tenant = None,
    request_key: RequestKey = None,
) -> ScheduleView:
    """Go on from its next time; those that have passed are not made up for.

    Sending again changes nothing, with or without an `Idempotency-Key`.
    """
    resuming = gateway.client.schedules.resume(name, tenant=tenant)
    return await confirmed(resuming, gateway.stopping, request)


@router.post("/{name}/trigger", responses=problems(404, 504), dependencies=[needs(Scope.STEER)])
async def trigger_schedule(
    name: Name, gateway: TheGateway, request: Request, tenant: Tenant = None
) -> ScheduleView:
    """Do it now, once, whether it is paused or not. Sending again does it again."""
    triggering = gateway.client.schedules.trigger(name, tenant=tenant)
    return await confirmed(triggering, gateway.stopping, request)


@router.delete(
    "/{name}",
    status_code=204,
    response_class=Response,
    responses=problems(404, 504),
    dependencies=[needs(Scope.STEER)],
)
async def remove_schedule(
    name: Name, gateway: TheGateway, request: Request, tenant: Tenant = None
) -> Response:
    """Remove it. What it has sent stays sent."""
    removing = gateway.client.schedules.remove(name, tenant=tenant)
    await confirmed(removing, gateway.stopping, request)
    return Response(status_code=204)
