"""Tool calls: claimed before an effect, sealed after it, so that a crash in between is known.

Invariant: a call has one result in the transcript, at the place reserved for it when its step
was committed, whoever seals it and however often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial
from typing import Any

from sqlalchemy import Connection, insert, select, update

from perdure.audit import AuditEntry
from perdure.domain.approvals import Approval, ApprovalState, digest_of
from perdure.domain.errors import NotFound
from perdure.domain.labels import Label, join
from perdure.domain.messages import Frozen, Role, ToolCall
from perdure.domain.states import EventKind, ToolStatus
from perdure.domain.steps import ToolRequest
from perdure.store import approvals
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.file_labels import label_at, raise_label
from perdure.store.session_writer import SessionWriter
from perdure.store.tables import messages, tool_claims
from perdure.store.trails import Trail


class Verdict(StrEnum):
    """What is to be done with a call."""

    RUN = "run"
    REFUSE = "refuse"
    ASK = "ask"


class Ruling(Frozen):
    """What policy says of a call: `call` as it may run, and `label`, the level of what it brings
    in. `entries` are recorded with the claim."""

    verdict: Verdict
    call: ToolCall
    label: Label = Label.PUBLIC
    reason: str = ""
    decided_by: str = ""
    timeout: float = 0.0
    entries: tuple[AuditEntry, ...] = ()

    def refused(self, reason: str, decided_by: str) -> Ruling:
        """The same call, refused."""
        changes = {"verdict": Verdict.REFUSE, "reason": reason, "decided_by": decided_by}
        return self.model_copy(update=changes)

    def asking(self, reason: str, decided_by: str, timeout: float) -> Ruling:
        """The same call, to be approved by a person within `timeout` seconds."""
        changes = {"verdict": Verdict.ASK, "reason": reason, "decided_by": decided_by}
        return self.model_copy(update={**changes, "timeout": timeout})


#: Decides a call from the call, its approval if there is one, and the labels of files.
Judge = Callable[[ToolCall, Approval | None, Callable[[str], Label]], Ruling]


class Claim(Frozen):
    """A claimed call: what is to run, and what is known of earlier attempts.

    `sealed` is the recorded status when the call was already reported; `earlier` counts the
    attempts that claimed it before and never reported. `waiting` is set when it must not run
    yet, `refused` when it must not run at all.
    """

    call: ToolCall
    label: Label = Label.PUBLIC
    sealed: ToolStatus | None = None
    earlier: int = 0
    waiting: Approval | None = None
    refused: str | None = None


class Result(Frozen):
    """What a call came to: the text that the model reads, and its level. `wrote` is the path of
    the workspace that now holds what the session knows."""

    status: ToolStatus
    text: str
    label: Label = Label.PUBLIC
    wrote: str | None = None
    entries: tuple[AuditEntry, ...] = ()


class Claims:
    """Claiming and sealing tool calls."""

    def __init__(self, database: Database, trail: Trail) -> None:
        self._database = database
        self._trail = trail

    async def claim(self, request: ToolRequest, judge: Judge) -> Claim:
        """Have the call judged, and record that it is about to run, or that a person is asked.

        Raises:
            NotFound: when no committed step made such a call.
        """
        return await self._database.write(_claim, self._trail, request, judge)

    async def call_of(self, request: ToolRequest) -> ToolCall:
        """The call as the model made it.

        Raises:
            NotFound: when no committed step made such a call.
        """
        return await self._database.read(_call_of, request)

    async def seal(self, request: ToolRequest, call: ToolCall, result: Result) -> ToolStatus:
        """Record the result of a call; a second seal changes nothing. Returns what is recorded."""
        return await self._database.write(_seal, self._trail, request, call, result)

    async def labels_at(self, session_key: str, paths: Iterable[str]) -> dict[str, Label]:
        """The labels of files that a session wrote."""
        return await self._database.read(_labels_at, session_key, tuple(paths))


def _claim(connection: Connection, trail: Trail, request: ToolRequest, judge: Judge) -> Claim:
    call = _call_of(connection, request)
    earlier = connection.execute(select(tool_claims).where(*_claim_is(request))).one_or_none()
    if earlier is not None and earlier.status is not None:
        return Claim(call=call, sealed=earlier.status, earlier=earlier.claims)
    approval = approvals.of_call(connection, request)
    if approval is not None and approval.digest != digest_of(call):
        approval = None
    if approval is not None and approval.state is ApprovalState.PENDING:
        return Claim(call=call, waiting=approval)
    ruling = judge(call, approval, partial(label_at, connection, request.session_key))
    for entry in ruling.entries:
        trail.append(connection, entry)
    if ruling.verdict is Verdict.ASK:
        with SessionWriter(connection, request.session_key) as session:
            asked = approvals.ask(
                session,
                request,
                call,
                asked_by=ruling.decided_by,
                reason=ruling.reason,
                timeout=ruling.timeout,
            )
        return Claim(call=call, waiting=asked)
    if earlier is None:
        connection.execute(
            insert(tool_claims).values(**_key(request), tool=call.name, claims=1, claimed_at=now())
        )
        with SessionWriter(connection, request.session_key) as session:
            _tell(session, request, EventKind.TOOL_STARTED, call)
    else:
        connection.execute(
            update(tool_claims).where(*_claim_is(request)).values(claims=earlier.claims + 1)
        )
    return Claim(
        call=ruling.call,
        label=ruling.label,
        earlier=earlier.claims if earlier else 0,
        refused=ruling.reason if ruling.verdict is Verdict.REFUSE else None,
    )


def _call_of(connection: Connection, request: ToolRequest) -> ToolCall:
    calls = connection.scalar(select(messages.c.tool_calls).where(*_answer_of(request)))
    if calls is None or not 0 <= request.call < len(calls):
        raise NotFound(f"Step {request.step} of turn {request.turn} made no call {request.call}.")
    return ToolCall.model_validate(calls[request.call])


def _seal(
    connection: Connection, trail: Trail, request: ToolRequest, call: ToolCall, result: Result
) -> ToolStatus:
    sealed = connection.scalar(select(tool_claims.c.status).where(*_claim_is(request)))
    if sealed is not None:
        return ToolStatus(sealed)
    answer = connection.execute(
        select(messages.c.seq, messages.c.epoch).where(*_answer_of(request))
    ).one()
    connection.execute(
        update(tool_claims).where(*_claim_is(request)).values(status=result.status, sealed_at=now())
    )
    for entry in result.entries:
        trail.append(connection, entry)
    label = join(request.label, result.label)
    if result.wrote is not None:
        raise_label(connection, request.session_key, result.wrote, label)
    with SessionWriter(connection, request.session_key) as session:
        session.fill(
            answer.seq + 1 + request.call,
            answer.epoch,
            id=f"res_{request.turn}_{request.step}_{request.call}",
            turn=request.turn,
            step=request.step,
            role=Role.TOOL,
            text=result.text,
            tool_call_id=call.id,
            tool_name=call.name,
            label=label,
        )
        session.raise_label(label, turn=request.turn, reason=f"tool {call.name}")
        _tell(session, request, EventKind.TOOL_COMPLETED, call, status=result.status)
    return result.status


def _labels_at(
    connection: Connection, session_key: str, paths: tuple[str, ...]
) -> dict[str, Label]:
    return {path: label_at(connection, session_key, path) for path in paths}


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
