"""Sessions over HTTP: list, look at, interrupt, reset, close.

Invariant: every endpoint is one call of `SessionClient`; none knows more than it says.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from gateway.http.access import needs
from gateway.http.acting import RequestKey, confirmed
from gateway.http.paging import LONG_AGO, AtTime, Cursor, Offset, link_next, read, written
from gateway.http.parts import KeyInPath, TheGateway, problems
from gateway.http.tags import Tagged
from perdure.domain.access import Scope
from perdure.domain.keys import Kind
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen
from perdure.domain.states import SessionState
from perdure.shapes import SessionList, SessionStatus
from perdure.store.marks import Mark

router = APIRouter(prefix="/v1/sessions", tags=["sessions"], route_class=Tagged)


class SessionPage(SessionList):
    """A page of sessions, last active first. `next` is null on the last one.

    A session that becomes active while pages are followed moves to the first one.
    """

    next: str | None = None


class Interrupted(Frozen):
    """The turn that was interrupted, or null when none was running."""

    turn: int | None = Field(examples=[3])


class Reset(Frozen):
    """How many waiting messages a reset has discarded."""

    dropped: int = Field(examples=[0])


@router.get("", responses=problems(400), dependencies=[needs(Scope.READ)])
async def list_sessions(
    gateway: TheGateway,
    request: Request,
    response: Response,
    kind: Kind | Literal["all"] = "all",
    state: SessionState | None = None,
    agent: Annotated[str | None, Query(max_length=200, description="Only of this agent.")] = None,
    label: Label | None = None,
    since_minutes: Annotated[
        float | None,
        Query(ge=0, le=LONG_AGO, allow_inf_nan=False, description="Active within this time."),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    offset: Offset = 0,
    cursor: Cursor = None,
) -> SessionPage:
    """A page of sessions, last active first."""
    place = read(cursor, AtTime, "sessions", offset)
    found = await gateway.client.sessions(
        kind=None if kind == "all" else kind,
        since_minutes=since_minutes,
        state=state,
        agent=agent,
        label=label,
        limit=limit,
        offset=offset,
        mark=Mark(time=place.time, id=place.id) if place else None,
    )
    cursor = None
    if len(found.sessions) == limit:
        last = found.sessions[-1]
        cursor = written(AtTime(of="sessions", time=last.last_activity, id=last.session_key))
    return SessionPage(**found.model_dump(), next=link_next(request, response, cursor))


@router.get("/{key}", responses=problems(400, 404), dependencies=[needs(Scope.READ)])
async def read_session(key: KeyInPath, gateway: TheGateway) -> SessionStatus:
    """A session in figures."""
    return await gateway.client.status(key)


@router.post(
    "/{key}/interrupt", responses=problems(400, 404, 504), dependencies=[needs(Scope.STEER)]
)
async def interrupt_turn(
    key: KeyInPath, gateway: TheGateway, request: Request, request_key: RequestKey = None
) -> Interrupted:
    """Stop the turn under way and keep what it has; the session goes on with what waits.

    With an `Idempotency-Key`, sending again soon stops no later turn: the workflow of the session
    knows the key until it continues as a new run, after a hundred turns or a thousand updates.
    """
    work = gateway.client.interrupt(key, request_id=request_key)
    return Interrupted(turn=await confirmed(work, gateway.stopping, request))


@router.post(
    "/{key}/reset", responses=problems(400, 403, 404, 504), dependencies=[needs(Scope.STEER)]
)
async def reset_session(
    key: KeyInPath, gateway: TheGateway, request: Request, request_key: RequestKey = None
) -> Reset:
    """Go on with an empty context and an empty inbox; the transcript is kept.

    With an `Idempotency-Key`, sending again is the same reset, for ever: what was said since is
    not discarded.
    """
    work = gateway.client.reset(key, by=gateway.caller.name, request_id=request_key)
    return Reset(dropped=await confirmed(work, gateway.stopping, request))


@router.delete(
    "/{key}",
    status_code=204,
    response_class=Response,
    responses=problems(400, 404, 504),
    dependencies=[needs(Scope.STEER)],
)
async def close_session(key: KeyInPath, gateway: TheGateway, request: Request) -> Response:
    """Let a session answer what it has, then end it. A later message opens it again."""
    await confirmed(gateway.client.close(key), gateway.stopping, request)
    return Response(status_code=204)
