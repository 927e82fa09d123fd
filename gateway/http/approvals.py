"""Approvals over HTTP: what waits for a person, and the person's word.

Invariant: a decision is final, and says who made it. Whoever decides by what they have read finds
out if it has changed since.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from gateway.http.access import needs
from gateway.http.acting import RequestKey, confirmed
from gateway.http.paging import AtTime, Cursor, Offset, link_next, read, written
from gateway.http.parts import Gateway, TheGateway, problems, shown
from gateway.http.paths import ApprovalIdInPath, OfSession
from gateway.http.problems import refused
from gateway.http.tags import IfMatch, Tagged, matches, tag_of
from perdure.domain.access import Scope
from perdure.domain.approvals import Approval, ApprovalList, ApprovalState
from perdure.domain.errors import Conflict
from perdure.store.marks import Mark

router = APIRouter(prefix="/v1/approvals", tags=["approvals"], route_class=Tagged)

_REASON = Field("", max_length=10_000, description="The model reads it; the audit trail keeps it.")


class ApprovalPage(ApprovalList):
    """A page of approvals, newest first. `next` is null on the last one."""

    next: str | None = None


class Consent(BaseModel):
    """Yes, and with which arguments."""

    model_config = ConfigDict(extra="forbid")

    reason: str = _REASON
    arguments: dict[str, JsonValue] | None = Field(
        None, description="Run the call with these instead of what the model asked for."
    )


class Refusal(BaseModel):
    """No, and why."""

    model_config = ConfigDict(extra="forbid")

    reason: str = _REASON


@router.get("", responses=problems(400), dependencies=[needs(Scope.READ, Scope.APPROVE)])
async def list_approvals(
    gateway: TheGateway,
    request: Request,
    response: Response,
    session_key: OfSession,
    state: ApprovalState | Literal["all"] = ApprovalState.PENDING,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    offset: Offset = 0,
    cursor: Cursor = None,
) -> ApprovalPage:
    """A page of the calls that wait for a person, or of those that did."""
    place = read(cursor, AtTime, "approvals", offset)
    found = await gateway.client.approvals(
        session_key=session_key,
        state=None if state == "all" else state,
        limit=limit,
        offset=offset,
        mark=Mark(time=place.time, id=place.id) if place else None,
    )
    cursor = None
    if len(found.approvals) == limit:
        last = found.approvals[-1]
        cursor = written(AtTime(of="approvals", time=last.asked_at, id=last.id))
    return ApprovalPage(**found.model_dump(), next=link_next(request, response, cursor))


@router.get(
    "/{approval_id}",
    response_model=Approval,
    responses=problems(400, 404),
    dependencies=[needs(Scope.READ, Scope.APPROVE)],
)
async def read_approval(approval_id: ApprovalIdInPath, gateway: TheGateway) -> Response:
    """A call that waits for a person, or did. Its `ETag` goes with a decision as `If-Match`."""
    return shown(await gateway.client.approval(approval_id))


@router.post(
    "/{approval_id}/approve",
    response_model=Approval,
    responses=problems(400, 404, 409, 412, 504),
    dependencies=[needs(Scope.APPROVE)],
)
async def approve(
    approval_id: ApprovalIdInPath,
    consent: Consent,
    gateway: TheGateway,
    if_match: IfMatch = None,
    request_key: RequestKey = None,
) -> Response:
    """Let a call run, as the model asked for it or with other arguments.

    A decision is final. The same decision by the same caller again is answered as it was the first
    time, with or without an `Idempotency-Key`; another one is a conflict.
    """
    changed = None if consent.arguments is None else json.dumps(consent.arguments)
    return await _decide(gateway, approval_id, True, consent.reason, changed, if_match)


@router.post(
    "/{approval_id}/deny",
    response_model=Approval,
    responses=problems(400, 404, 409, 412, 504),
    dependencies=[needs(Scope.APPROVE)],
)
async def deny(
    approval_id: ApprovalIdInPath,
    refusal: Refusal,
    gateway: TheGateway,
    if_match: IfMatch = None,
    request_key: RequestKey = None,
) -> Response:
    """Refuse a call. The model is told so, and why.

    A decision is final. The same decision by the same caller again is answered as it was the first
    time, with or without an `Idempotency-Key`; another one is a conflict.
    """
    return await _decide(gateway, approval_id, False, refusal.reason, None, if_match)


async def _decide(
    gateway: Gateway,
    approval_id: str,
    approved: bool,
    reason: str,
    changed: str | None,
    if_match: str | None,
) -> Response:
    client, by = gateway.client, gateway.caller.signature
    state = ApprovalState.APPROVED if approved else ApprovalState.DENIED
    decision = (state, by, reason or None, changed)
    found = await client.approval(approval_id)
    tag = tag_of(found.model_dump_json().encode())
    if if_match is not None and not matches(if_match, tag) and _decision(found) != decision:
        stale = Conflict(
            f"The approval {approval_id} is not as you have read it; it is {found.state}.",
            "Read it again, and decide by what it is now.",
        )
        return refused(stale, 412)
    work = client.decide(approval_id, approve=approved, by=by, reason=reason, arguments=changed)
    try:
        return shown(await confirmed(work, gateway.stopping))
    except Conflict:
        found = await client.approval(approval_id)
        if _decision(found) != decision:
            raise
        return shown(found)


def _decision(approval: Approval) -> tuple[ApprovalState, str | None, str | None, str | None]:
    return approval.state, approval.decided_by, approval.note, approval.changed
