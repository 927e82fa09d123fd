"""Tool calls: claimed before an effect, sealed after it, so that a crash in between is known.

Invariant: a call has one result in the transcript, at the place reserved for it when its step
was committed, whoever seals it and however often.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import insert, select, update

from perdure.domain.errors import NotFound
from perdure.domain.messages import Frozen, Role, ToolCall
from perdure.domain.states import EventKind, ToolStatus
from perdure.domain.steps import ToolRequest
from perdure.store import outbox
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.dialect import insert_or_ignore
from perdure.store.tables import messages, sessions, steps, tool_claims


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
        async with self._database.write() as connection:
            calls = await connection.scalar(
                select(messages.c.tool_calls).where(
                    messages.c.session_key == request.session_key,
                    messages.c.id == f"ans_{request.turn}_{request.step}",
                )
            )
            if calls is None or not 0 <= request.call < len(calls):
                raise NotFound(
                    f"Step {request.step} of turn {request.turn} made no call {request.call}."
                )
            call = ToolCall.model_validate(calls[request.call])
            claimed = await connection.execute(
                insert_or_ignore(tool_claims).values(
                    **_key(request), tool=call.name, claims=1, claimed_at=now()
                )
            )
            if claimed.rowcount:
                await outbox.append(
                    connection,
                    request.session_key,
                    EventKind.TOOL_STARTED,
                    turn=request.turn,
                    step=request.step,
                    call=request.call,
                    tool=call.name,
                )
                return Claim(call=call)
            row = (await connection.execute(select(tool_claims).where(*_claim_is(request)))).one()
            if row.status is None:
                await connection.execute(
                    update(tool_claims).where(*_claim_is(request)).values(claims=row.claims + 1)
                )
            return Claim(call=call, sealed=row.status, earlier=row.claims)

    async def seal(
        self, request: ToolRequest, call: ToolCall, status: ToolStatus, text: str
    ) -> ToolStatus:
        """Record the result of a call; a second seal changes nothing. Returns what is recorded."""
        async with self._database.write() as connection:
            sealed = await connection.scalar(
                select(tool_claims.c.status).where(*_claim_is(request))
            )
            if sealed is not None:
                return ToolStatus(sealed)
            step_seq = await connection.scalar(
                select(steps.c.message_seq).where(
                    steps.c.session_key == request.session_key,
                    steps.c.turn == request.turn,
                    steps.c.step == request.step,
                )
            )
            epoch = await connection.scalar(
                select(messages.c.epoch).where(
                    messages.c.session_key == request.session_key, messages.c.seq == step_seq
                )
            )
            await connection.execute(
                insert(messages).values(
                    session_key=request.session_key,
                    seq=(step_seq or 0) + 1 + request.call,
                    id=f"res_{request.turn}_{request.step}_{request.call}",
                    epoch=epoch,
                    turn=request.turn,
                    step=request.step,
                    role=Role.TOOL,
                    text=text,
                    tool_calls=[],
                    tool_call_id=call.id,
                    tool_name=call.name,
                    label=request.label,
                    at=now(),
                )
            )
            await connection.execute(
                update(tool_claims)
                .where(*_claim_is(request))
                .values(status=status, sealed_at=now())
            )
            await connection.execute(
                update(sessions)
                .where(sessions.c.session_key == request.session_key)
                .values(message_count=sessions.c.message_count + 1, last_activity=now())
            )
            await outbox.append(
                connection,
                request.session_key,
                EventKind.TOOL_COMPLETED,
                turn=request.turn,
                step=request.step,
                call=request.call,
                tool=call.name,
                status=status,
            )
        return status


def _key(request: ToolRequest) -> dict[str, Any]:
    return request.model_dump(include={"session_key", "turn", "step", "call"})


def _claim_is(request: ToolRequest) -> tuple[Any, ...]:
    return tuple(tool_claims.c[name] == value for name, value in _key(request).items())
