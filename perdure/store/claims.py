"""Tool calls: claimed before an effect, sealed after it, so that a crash in between is known.

Invariant: a call has one result in the transcript, at the place reserved for it when its step
was committed, whoever seals it and however often.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, insert, select, update

from perdure.domain.errors import NotFound
from perdure.domain.messages import Frozen, Role, ToolCall
from perdure.domain.states import EventKind, ToolStatus
from perdure.domain.steps import ToolRequest
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.session_writer import SessionWriter
from perdure.store.tables import messages, tool_claims


class Claim(Frozen):
    """A claimed call: what the model asked for, and what is known of earlier attempts.

    `sealed` is the recorded status when the call was already reported; `earlier` counts the
    attempts that claimed it before and never reported.
    """

    call: ToolCall
    sealed: ToolStatus | None = None
    earlier: int = 0


class Claims:
    """Claiming and sealing tool calls."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, request: ToolRequest) -> Claim:
        """Record that the call is about to run.

        Raises:
            NotFound: when no committed step made such a call.
        """
        return await self._database.write(_claim, request)

    async def seal(
        self, request: ToolRequest, call: ToolCall, status: ToolStatus, text: str
    ) -> ToolStatus:
        """Record the result of a call; a second seal changes nothing. Returns what is recorded."""
        return await self._database.write(_seal, request, call, status, text)


def _claim(connection: Connection, request: ToolRequest) -> Claim:
    calls = connection.scalar(select(messages.c.tool_calls).where(*_answer_of(request)))
    if calls is None or not 0 <= request.call < len(calls):
        raise NotFound(f"Step {request.step} of turn {request.turn} made no call {request.call}.")
    call = ToolCall.model_validate(calls[request.call])
    earlier = connection.execute(select(tool_claims).where(*_claim_is(request))).one_or_none()
    if earlier is None:
        connection.execute(
            insert(tool_claims).values(**_key(request), tool=call.name, claims=1, claimed_at=now())
        )
        with SessionWriter(connection, request.session_key) as session:
            _tell(session, request, EventKind.TOOL_STARTED, call)
        return Claim(call=call)
    if earlier.status is None:
        connection.execute(
            update(tool_claims).where(*_claim_is(request)).values(claims=earlier.claims + 1)
        )
    return Claim(call=call, sealed=earlier.status, earlier=earlier.claims)


def _seal(
    connection: Connection, request: ToolRequest, call: ToolCall, status: ToolStatus, text: str
) -> ToolStatus:
    sealed = connection.scalar(select(tool_claims.c.status).where(*_claim_is(request)))
    if sealed is not None:
        return ToolStatus(sealed)
    answer = connection.execute(
        select(messages.c.seq, messages.c.epoch).where(*_answer_of(request))
    ).one()
    connection.execute(
        update(tool_claims).where(*_claim_is(request)).values(status=status, sealed_at=now())
    )
    with SessionWriter(connection, request.session_key) as session:
        session.fill(
            answer.seq + 1 + request.call,
            answer.epoch,
            id=f"res_{request.turn}_{request.step}_{request.call}",
            turn=request.turn,
            step=request.step,
            role=Role.TOOL,
            text=text,
            tool_call_id=call.id,
            tool_name=call.name,
            label=request.label,
        )
        _tell(session, request, EventKind.TOOL_COMPLETED, call, status=status)
    return status


def _tell(
    session: SessionWriter, request: ToolRequest, kind: EventKind, call: ToolCall, **more: Any
) -> None:
    session.tell(
        kind, turn=request.turn, step=request.step, call=request.call, tool=call.name, **more
    )


def _answer_of(request: ToolRequest) -> tuple[Any, ...]:
    return (
        messages.c.session_key == request.session_key,
        messages.c.id == f"ans_{request.turn}_{request.step}",
    )


def _key(request: ToolRequest) -> dict[str, Any]:
    return request.model_dump(include={"session_key", "turn", "step", "call"})


def _claim_is(request: ToolRequest) -> tuple[Any, ...]:
    return tuple(tool_claims.c[name] == value for name, value in _key(request).items())
