"""Runs over HTTP: the work that sessions have handed over, looked at, steered and stopped.

Invariant: a wait that ends early is no error: whoever asks learns how far the run is, and may ask
again.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from activities.steering import SteerResult
from gateway.http.access import needs
from gateway.http.acting import RequestKey, confirmed
from gateway.http.paging import LONG_AGO, AtRun, AtTime, Cursor, Offset, link_next, read, written
from gateway.http.parts import LONGEST_WAIT, TheGateway, problems, shown, while_wanted
from gateway.http.paths import OfSession, RunIdInPath
from gateway.http.tags import Tagged
from gateway.runs import KilledRun
from perdure.delegation.results import RunResult
from perdure.domain.access import Scope
from perdure.domain.errors import TimedOut, Unavailable
from perdure.store.marks import Mark
from perdure.store.run_trees import Forest
from perdure.store.run_views import RunList, RunView

router = APIRouter(prefix="/v1", tags=["runs"], route_class=Tagged)

Recent = Annotated[
    float | None,
    Query(
        ge=0,
        le=LONG_AGO,
        allow_inf_nan=False,
        description="Leave out the runs that ended longer ago, in minutes.",
    ),
]


class RunPage(RunList):
    """A page of runs, each after the run that spawned it. `next` is null on the last one."""

    next: str | None = None


class TreePage(Forest):
    """A page of sessions with their runs, last active first. `next` is null on the last one."""

    next: str | None = None


class Steering(BaseModel):
    """What a run is to do."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, description="It takes this in, or does this instead.")


@router.get("/runs", responses=problems(400), dependencies=[needs(Scope.READ)])
async def list_runs(
    gateway: TheGateway,
    request: Request,
    response: Response,
    session_key: OfSession,
    recent_minutes: Recent = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    offset: Offset = 0,
    cursor: Cursor = None,
) -> RunPage:
    """A page of the runs below a session, at every depth, or of all runs."""
    place = read(cursor, AtRun, "runs", offset)
    found = await gateway.client.runs.list(
        session_key,
        recent_minutes=recent_minutes,
        limit=limit,
        offset=offset,
        after=place.id if place else None,
    )
    more = len(found.runs) == limit
    cursor = written(AtRun(id=found.runs[-1].run_id)) if more else None
    return RunPage(**found.model_dump(), next=link_next(request, response, cursor))


@router.get("/tree", responses=problems(400, 404), dependencies=[needs(Scope.READ)])
async def read_tree(
    gateway: TheGateway,
    request: Request,
    response: Response,
    session_key: OfSession,
    recent_minutes: Recent = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    offset: Offset = 0,
    cursor: Cursor = None,
) -> TreePage:
    """Sessions and the runs below them, as a tree: one session, or all that work or have runs."""
    place = read(cursor, AtTime, "trees", offset)
    found = await gateway.client.runs.tree(
        session_key,
        recent_minutes=recent_minutes,
        limit=limit,
        offset=offset,
        mark=Mark(time=place.time, id=place.id) if place else None,
    )
    cursor = None
    if len(found.sessions) == limit and session_key is None:
        last = found.sessions[-1]
        cursor = written(AtTime(of="trees", time=last.last_activity, id=last.session_key))
    return TreePage(**found.model_dump(), next=link_next(request, response, cursor))


@router.get("/runs/{run_id}", responses=problems(400, 404), dependencies=[needs(Scope.READ)])
async def read_run(run_id: RunIdInPath, gateway: TheGateway) -> RunView:
    """A run: how far it is, and what it last did."""
    return await gateway.client.runs.get(run_id)


@router.get(
    "/runs/{run_id}/result",
    response_model=RunResult,
    responses={
        202: {"model": RunView, "description": "It has not ended; how far it is."},
        **problems(400, 404),
    },
    dependencies=[needs(Scope.READ)],
)
async def read_result(
    run_id: RunIdInPath,
    gateway: TheGateway,
    request: Request,
    timeout: Annotated[
        float,
        Query(
            ge=0,
            le=LONGEST_WAIT,
            allow_inf_nan=False,
            description="Wait so many seconds for the end of the run.",
        ),
    ] = 0,
) -> Response:
    """The result of a run, or of the one that took its place when it was steered."""
    runs = gateway.client.runs
    work = runs.result(run_id, wait=timeout > 0, timeout=timeout)
    try:
        return shown(await while_wanted(work, gateway.stopping, caller=request))
    except (TimedOut, Unavailable):
        return shown(await runs.get(run_id), 202)


@router.post(
    "/runs/{run_id}/steer",
    responses=problems(400, 404, 409, 429, 504),
    dependencies=[needs(Scope.STEER)],
)
async def steer_run(
    run_id: RunIdInPath, steering: Steering, gateway: TheGateway, request_key: RequestKey = None
) -> SteerResult:
    """Have a run take in a message at its next step, or do that instead, as its agent is set.

    With an `Idempotency-Key`, sending again is the same steering. A run that is not under way is
    left as it is, and its status is the answer.
    """
    work = gateway.client.runs.steer(
        run_id, steering.text, by=gateway.caller.name, request_id=request_key
    )
    return await confirmed(work, gateway.stopping)


@router.post(
    "/runs/{run_id}/kill", responses=problems(400, 404, 504), dependencies=[needs(Scope.STEER)]
)
async def kill_run(
    run_id: RunIdInPath, gateway: TheGateway, request_key: RequestKey = None
) -> KilledRun:
    """Stop a run and all below it, and keep what they have committed.

    A run is stopped once: sending again stops nothing more, with or without an
    `Idempotency-Key`, and `killed` is false when it had ended before.
    """
    return await confirmed(gateway.client.runs.kill(run_id), gateway.stopping)
