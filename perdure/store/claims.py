"""Tool calls: claimed before an effect, sealed after it, so that a crash in between is known.

Invariant: a call has one result in the transcript, at the place reserved for it when its step
was committed, whoever seals it and however often.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field
from sqlalchemy import Connection, Row, bindparam, insert, select, update

from perdure.audit import AuditEntry
from perdure.domain.approvals import Approval, ApprovalState
from perdure.domain.errors import NotFound
from perdure.domain.labels import Label, join
from perdure.domain.messages import Frozen, Role, ToolCall
from perdure.domain.states import EventKind, ToolStatus
from perdure.domain.steps import ChildStart, ToolRequest
from perdure.store import approvals, kept_results, waits
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.file_labels import labels_of, raise_label
from perdure.store.session_writer import SessionWriter
from perdure.store.tables import messages, tool_claims
from perdure.store.trails import Trail
from perdure.tools.subagents import SPAWN

# Statements are built once: building them anew costs more than running them.
_CALL = ("session_key", "turn", "step", "call")
_CLAIM_IS = tuple(tool_claims.c[name] == bindparam(f"of_{name}") for name in _CALL)
_READ_CLAIM = select(tool_claims).where(*_CLAIM_IS)
_ADD_CLAIM = insert(tool_claims)
_COUNT_CLAIM = update(tool_claims).where(*_CLAIM_IS).values(claims=tool_claims.c.claims + 1)
_SEAL_CLAIM = (
    update(tool_claims)
    .where(*_CLAIM_IS)
    .values(status=bindparam("sealed"), sealed_at=bindparam("at"))
)
_READ_MESSAGE = select(
    messages.c.seq,
    messages.c.epoch,
    messages.c.label,
    messages.c.tool_calls,
    messages.c.exchange,
    messages.c.aside,
).where(messages.c.session_key == bindparam("key"), messages.c.id == bindparam("message_id"))


#: How events name what a model called and is no tool.
UNKNOWN_TOOL = "unknown tool"


class Verdict(StrEnum):
    """What is to be done with a call."""

    RUN = "run"
    REFUSE = "refuse"
    ASK = "ask"


class Ruling(Frozen):
    """What policy says of a call: `call` as it may run, and `label`, the level of what it brings
    in. `entries` are recorded with the claim, and so is that `writes`, paths of the workspace, may
    hold what the session knows: a process may die between a write and its report. What is not
    `known` is no tool: its name is the model's text, and stays out of events.
    """

    verdict: Verdict
    call: ToolCall
    label: Label = Label.PUBLIC
    reason: str = ""
    decided_by: str = ""
    timeout: float = 0.0
    entries: tuple[AuditEntry, ...] = ()
    writes: tuple[str, ...] = ()
    known: bool = True

    def refused(self, reason: str, decided_by: str) -> Ruling:
        """The same call, refused."""
        changes = {"verdict": Verdict.REFUSE, "reason": reason, "decided_by": decided_by}
        return self.model_copy(update=changes)

    def asking(self, reason: str, decided_by: str, timeout: float) -> Ruling:
        """The same call, to be approved by a person within `timeout` seconds."""
        changes = {"verdict": Verdict.ASK, "reason": reason, "decided_by": decided_by}
        return self.model_copy(update={**changes, "timeout": timeout})


class Look(Frozen):
    """What is known of a call before it is judged: `sealed` if it was reported already, the
    approval if one was asked for, and the labels of the files its session wrote."""

    call: ToolCall
    sealed: ToolStatus | None = None
    sealed_label: Label = Label.PUBLIC
    approval: Approval | None = None
    #: Whether it was begun, and has no result.
    claimed: bool = False
    labels: dict[str, Label] = Field(default_factory=dict)


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
    """What a call came to: the text that the model reads, and its level. `kept` is the path of
    the workspace that holds the whole of it."""

    status: ToolStatus
    text: str
    label: Label = Label.PUBLIC
    kept: str | None = None
    #: A run whose workflow is to be started.
    start: ChildStart | None = None
    #: Whether a run waits for a place.
    queued: bool = False
    entries: tuple[AuditEntry, ...] = ()


class Claims:
    """Claiming and sealing tool calls."""

    def __init__(self, database: Database, trail: Trail) -> None:
        self._database = database
        self._trail = trail

    async def look(self, request: ToolRequest) -> Look:
        """What is known of a call.

        Raises:
            NotFound: when no committed step made such a call.
        """
        return await self._database.read(_look, request)

    async def claim(self, request: ToolRequest, ruling: Ruling) -> Claim:
        """Record how the call was ruled, and that it is about to run, or that a person is asked.

        Raises:
            NotFound: when no committed step made such a call.
        """
        return await self._database.write(_claim, self._trail, request, ruling)

    async def seal(self, request: ToolRequest, call: ToolCall, result: Result) -> ToolStatus:
        """Record the result of a call; a second seal changes nothing. Returns what is recorded."""
        return await self._database.write(_seal, self._trail, request, call, result)


def _look(connection: Connection, request: ToolRequest) -> Look:
    claim = connection.execute(_READ_CLAIM, _place(request)).one_or_none()
    sealed = claim.status if claim else None
    result = _message(connection, request, _result_id(request)) if sealed else None
    return Look(
        call=_call_of(connection, request),
        sealed=sealed,
        sealed_label=result.label if result else Label.PUBLIC,
        approval=approvals.of_call(connection, request),
        claimed=claim is not None and sealed is None,
        labels=labels_of(connection, request.session_key),
    )


def _claim(connection: Connection, trail: Trail, request: ToolRequest, ruling: Ruling) -> Claim:
    call = _call_of(connection, request)
    earlier = connection.execute(_READ_CLAIM, _place(request)).one_or_none()
    if earlier is not None and earlier.status is not None:
        return Claim(call=call, sealed=earlier.status, earlier=earlier.claims)
    approval = None
    if ruling.verdict is not Verdict.RUN:
        approval = approvals.of_call(connection, request)
    if ruling.verdict is Verdict.ASK and approval is not None:
        # Another attempt asked, or another call was decided.
        return Claim(call=call, waiting=approval)
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
    if approval is not None and approval.state is ApprovalState.EXPIRED:
        with SessionWriter(connection, request.session_key) as session:
            approvals.expire(session, trail, approval)
    for path in ruling.writes:
        raise_label(connection, request.session_key, path, join(request.label, ruling.label))
    if earlier is None:
        tool = call.name if ruling.known else UNKNOWN_TOOL
        connection.execute(
            _ADD_CLAIM, {**_key(request), "tool": tool, "claims": 1, "claimed_at": now()}
        )
        with SessionWriter(connection, request.session_key) as session:
            _tell(session, request, EventKind.TOOL_STARTED, tool)
    else:
        connection.execute(_COUNT_CLAIM, _place(request))
    return Claim(
        call=ruling.call,
        label=ruling.label,
        earlier=earlier.claims if earlier else 0,
        refused=ruling.reason if ruling.verdict is Verdict.REFUSE else None,
    )


def _call_of(connection: Connection, request: ToolRequest) -> ToolCall:
    answer = _message(connection, request, _answer_id(request))
    calls = answer.tool_calls if answer else None
    if calls is None or not 0 <= request.call < len(calls):
        raise NotFound(f"Step {request.step} of turn {request.turn} made no call {request.call}.")
    return ToolCall.model_validate(calls[request.call])


def _seal(
    connection: Connection, trail: Trail, request: ToolRequest, call: ToolCall, result: Result
) -> ToolStatus:
    claim = connection.execute(_READ_CLAIM, _place(request)).one()
    if claim.status is not None:
        return ToolStatus(claim.status)
    answer = _message(connection, request, _answer_id(request))
    assert answer is not None  # it made the call
    connection.execute(_SEAL_CLAIM, {**_place(request), "sealed": result.status, "at": now()})
    for entry in result.entries:
        trail.append(connection, entry)
    label = join(request.label, result.label)
    if result.kept is not None:
        raise_label(connection, request.session_key, result.kept, label)
    with SessionWriter(connection, request.session_key) as session:
        waits.close_call(session, request)
        if claim.tool == SPAWN and result.status is not ToolStatus.UNKNOWN:
            kept_results.taken_by(connection, request)
        session.fill(
            answer.seq + 1 + request.call,
            answer.epoch,
            id=_result_id(request),
            turn=request.turn,
            step=request.step,
            role=Role.TOOL,
            text=result.text,
            tool_call_id=call.id,
            tool_name=call.name,
            label=label,
            exchange=answer.exchange,
            aside=answer.aside,
        )
        session.raise_label(label, turn=request.turn, reason=f"tool {claim.tool}")
        _tell(session, request, EventKind.TOOL_COMPLETED, claim.tool, status=result.status)
    return result.status


def _tell(
    session: SessionWriter, request: ToolRequest, kind: EventKind, tool: str, **more: Any
) -> None:
    session.tell(kind, turn=request.turn, step=request.step, call=request.call, tool=tool, **more)


def _message(
    connection: Connection, request: ToolRequest, message_id: str
) -> Row[*tuple[Any, ...]] | None:
    key = {"key": request.session_key, "message_id": message_id}
    return connection.execute(_READ_MESSAGE, key).one_or_none()


def _answer_id(request: ToolRequest) -> str:
    return f"ans_{request.turn}_{request.step}"


def _result_id(request: ToolRequest) -> str:
    return f"res_{request.turn}_{request.step}_{request.call}"


def _key(request: ToolRequest) -> dict[str, Any]:
    return request.model_dump(include=set(_CALL))


def _place(request: ToolRequest) -> dict[str, Any]:
    return {f"of_{name}": getattr(request, name) for name in _CALL}
