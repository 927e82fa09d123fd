"""Sessions over HTTP: list, look at, interrupt, reset, close.

Invariant: every endpoint is one call of `SessionClient`; none knows more than it says.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from gateway.http import parts
from gateway.http.access import needs
from gateway.http.messages import LAST_OFFSET
from gateway.http.parts import Gateway, KeyInPath, TheGateway, problems, while_wanted
from perdure.domain.access import Scope
from perdure.domain.errors import TimedOut
from perdure.domain.keys import Kind
from perdure.domain.messages import Frozen
from perdure.shapes import SessionList, SessionStatus

router = APIRouter(prefix="/v1/sessions", tags=["sessions"])

#: A hundred years: dates have a beginning.
_LONG_AGO = 52_560_000

Result = TypeVar("Result")


class Interrupted(Frozen):
    """The turn that was interrupted, or null when none was running."""

    turn: int | None = Field(examples=[3])


class Reset(Frozen):
    """How many waiting messages a reset has discarded."""

    dropped: int = Field(examples=[0])


@router.get("", responses=problems(), dependencies=[needs(Scope.READ)])
async def list_sessions(
    gateway: TheGateway,
    kind: Kind | Literal["all"] = "all",
    since_minutes: Annotated[
        float | None,
        Query(ge=0, le=_LONG_AGO, allow_inf_nan=False, description="Active within this time."),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    offset: Annotated[int, Query(ge=0, le=LAST_OFFSET)] = 0,
) -> SessionList:
    """A page of sessions, last active first."""
    return await gateway.client.sessions(
        kind=None if kind == "all" else kind,
        since_minutes=since_minutes,
        limit=limit,
        offset=offset,
    )


@router.get("/{key}", responses=problems(400, 404), dependencies=[needs(Scope.READ)])
async def read_session(key: KeyInPath, gateway: TheGateway) -> SessionStatus:
    """A session in figures."""
    return await gateway.client.status(key)


@router.post(
    "/{key}/interrupt",
    responses=problems(400, 404, 504),
    dependencies=[needs(Scope.STEER)],
)
async def interrupt_turn(key: KeyInPath, gateway: TheGateway, request: Request) -> Interrupted:
    """Stop the turn under way and keep what it has; the session goes on with what waits."""
    return Interrupted(turn=await _done(gateway, request, gateway.client.interrupt(key)))


@router.post(
    "/{key}/reset",
    responses=problems(400, 404, 504),
    dependencies=[needs(Scope.STEER)],
)
async def reset_session(key: KeyInPath, gateway: TheGateway, request: Request) -> Reset:
    """Go on with an empty context and an empty inbox; the transcript is kept."""
    return Reset(dropped=await _done(gateway, request, gateway.client.reset(key)))


@router.delete(
    "/{key}",
    status_code=204,
    response_class=Response,
    responses=problems(400, 404, 504),
    dependencies=[needs(Scope.STEER)],
)
async def close_session(key: KeyInPath, gateway: TheGateway, request: Request) -> Response:
    """Let a session answer what it has, then end it. A later message opens it again."""
    await _done(gateway, request, gateway.client.close(key))
    return Response(status_code=204)


async def _done(gateway: Gateway, request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    within = parts.PATIENCE
    try:
        return await while_wanted(work, gateway.stopping, caller=request, within=within)
    except TimeoutError as error:
        raise TimedOut(
            f"Not done within {within:g} s. If it was accepted, it will still happen.",
            "The session's events tell when. Asking again is safe.",
        ) from error
