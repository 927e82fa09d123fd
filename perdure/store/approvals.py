"""Approvals: asked for with the claim of a call, decided by a person, once.

Invariant: a decision is final, and one that comes too late changes nothing. No tool reaches
`decide`: only the ways in do.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pydantic_core import from_json
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    bindparam,
    func,
    insert,
    not_,
    or_,
    select,
    true,
    update,
)
from ulid import ULID

from perdure.audit import AuditEntry
from perdure.domain.approvals import (
    Approval,
    ApprovalList,
    ApprovalPurpose,
    ApprovalState,
    digest_of,
)
from perdure.domain.errors import Conflict, InvalidArgument, NotFound
from perdure.domain.labels import Label
from perdure.domain.messages import ToolCall
from perdure.domain.states import EventKind, SessionState
from perdure.domain.steps import ToolRequest
from perdure.policy.secrets import redact_arguments, redact_secrets
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.marks import Mark, after
from perdure.store.readers import Reader, seen_by, up_to
from perdure.store.session_writer import SessionWriter
from perdure.store.tables import approvals, messages, sessions, steps
from perdure.store.trails import Trail

_CALL = ("session_key", "turn", "step", "call")
_OF_CALL = select(approvals).where(
    *(approvals.c[name] == bindparam(f"of_{name}") for name in (*_CALL, "purpose"))
)
_PENDING_OF_TURN = select(approvals).where(
    approvals.c.session_key == bindparam("key"),
    approvals.c.turn == bindparam("of_turn"),
    approvals.c.state == ApprovalState.PENDING,
    approvals.c.purpose == ApprovalPurpose.CALL,
)


class Approvals:
    """Listing and deciding."""

    def __init__(self, database: Database, trail: Trail) -> None:
        self._database = database
        self._trail = trail

    async def list(
        self,
        *,
        session_key: str | None = None,
        state: ApprovalState | None = ApprovalState.PENDING,
        reader: Reader | None = None,
        limit: int = 50,
        offset: int = 0,
        mark: Mark | None = None,
    ) -> ApprovalList:
        """A page of approvals, newest first; `state` None is all of them. With a mark, it begins
        after the approval of that time and id. Those whose session is not there for a `reader`, or
        whose call it may not read, are left out."""
        return await self._database.read(_list, session_key, state, reader, limit, offset, mark)

    async def get(self, approval_id: str, reader: Reader | None = None) -> Approval:
        """One approval.

        Raises:
            NotFound: when there is none of that id for the reader.
        """
        return await self._database.read(get, approval_id, reader)

    async def decide(
        self,
        approval_id: str,
        *,
        approve: bool,
        by: str,
        note: str = "",
        changed: str | None = None,
    ) -> Approval:
        """Record a person's decision.

        Raises:
            NotFound: when there is none of that id.
            Conflict: when it was decided before, expired, or its turn has ended.
            InvalidArgument: when what was withheld would be changed.
        """
        return await self._database.write(
            _decide, self._trail, approval_id, approve, by, note, changed
        )


def of_call(
    connection: Connection,
    request: ToolRequest,
    purpose: ApprovalPurpose = ApprovalPurpose.CALL,
) -> Approval | None:
    """The approval of a call; None when none was asked for. One whose time is over counts as
    expired, whether or not that was recorded yet."""
    call = {f"of_{name}": getattr(request, name) for name in _CALL}
    row = connection.execute(_OF_CALL, {**call, "of_purpose": purpose}).one_or_none()
    return None if row is None else _read(row)


def get(connection: Connection, approval_id: str, reader: Reader | None = None) -> Approval:
    """One approval; see `Approvals.get`."""
    return _read(_row(connection, approval_id, reader))


def ask(
    session: SessionWriter,
    request: ToolRequest,
    call: ToolCall,
    *,
    asked_by: str,
    reason: str,
    timeout: float,
    purpose: ApprovalPurpose = ApprovalPurpose.CALL,
) -> Approval:
    """Ask for a person's word on a call; it expires after `timeout` seconds."""
    approval = Approval(
        id=f"apr_{ULID()}",
        **request.model_dump(include={"session_key", "turn", "step", "call"}),
        purpose=purpose,
        tool=call.name,
        arguments=call.arguments,
        digest=digest_of(call),
        asked_by=asked_by,
        reason=reason,
        state=ApprovalState.PENDING,
        asked_at=now(),
        expires_at=now() + timedelta(seconds=timeout),
    )
    session.connection.execute(insert(approvals).values(**approval.model_dump()))
    if purpose is ApprovalPurpose.CALL:
        session.change(state=SessionState.WAITING)
    session.tell(
        EventKind.APPROVAL_REQUESTED,
        turn=request.turn,
        step=request.step,
        call=request.call,
        approval_id=approval.id,
        tool=call.name,
        asked_by=asked_by,
        expires_at=approval.expires_at.isoformat(),
    )
    return approval


def expire(session: SessionWriter, trail: Trail, approval: Approval) -> None:
    """Record that nobody decided on a call in time."""
    row = _row(session.connection, approval.id)
    if row.state == ApprovalState.PENDING:
        _settle(session, row, ApprovalState.EXPIRED)
        trail.append(session.connection, _entry(approval, Label(session.row.label)))


def withdraw(session: SessionWriter, turn: int) -> None:
    """Withdraw what a turn that ends still waits for."""
    waiting = {"key": session.key, "of_turn": turn}
    for row in session.connection.execute(_PENDING_OF_TURN, waiting).all():
        _settle(session, row, ApprovalState.WITHDRAWN)


def _read(row: Row[Any]) -> Approval:
    approval = Approval.model_validate(dict(row._mapping))
    if approval.state is ApprovalState.PENDING and approval.expires_at <= now():
        return approval.model_copy(update={"state": ApprovalState.EXPIRED})
    return approval


def _settle(
    session: SessionWriter, row: Row[Any], state: ApprovalState, **decision: str | None
) -> None:
    session.connection.execute(
        update(approvals)
        .where(approvals.c.id == row.id)
        .values(state=state, decided_at=now(), **decision)
    )
    waiting = select(func.count()).where(
        approvals.c.session_key == row.session_key,
        approvals.c.state == ApprovalState.PENDING,
        approvals.c.purpose == ApprovalPurpose.CALL,
    )
    if row.purpose == ApprovalPurpose.CALL and not session.connection.scalar(waiting):
        session.change(state=SessionState.RUNNING)
    session.tell(
        EventKind.APPROVAL_DECIDED,
        turn=row.turn,
        step=row.step,
        call=row.call,
        approval_id=row.id,
        state=state,
        changed=decision.get("changed") is not None,
    )


def _decide(
    connection: Connection,
    trail: Trail,
    approval_id: str,
    approve: bool,
    by: str,
    note: str,
    changed: str | None,
) -> Approval:
    row = _row(connection, approval_id)
    approval = _read(row)
    if approval.state is not ApprovalState.PENDING:
        who = f" by {approval.decided_by}" if approval.decided_by else ""
        raise Conflict(
            f"The approval {approval_id} is {approval.state}{who}; a decision is final.",
            "`perdure approvals list` shows what still waits.",
        )
    if changed is not None and approval.purpose is ApprovalPurpose.RELEASE:
        raise InvalidArgument(
            "What was withheld is taken in as it is, or not at all.", "Approve without arguments."
        )
    state = ApprovalState.APPROVED if approve else ApprovalState.DENIED
    with SessionWriter(connection, approval.session_key) as session:
        _settle(session, row, state, decided_by=by, note=note or None, changed=changed)
        label = Label(session.row.label)
    decided = _read(_row(connection, approval_id))
    trail.append(connection, _entry(decided, label))
    return decided


def _entry(approval: Approval, label: Label) -> AuditEntry:
    arguments = from_json(approval.changed or approval.arguments or "{}")
    reason = approval.note or ""
    if approval.changed is not None:
        reason = f"Approved with changed arguments. {reason}".strip()
    person = f"person:{approval.decided_by}"
    return AuditEntry(
        hook="APPROVAL",
        session_key=approval.session_key,
        turn=approval.turn,
        step=approval.step,
        decision=approval.state,
        decided_by=person if approval.decided_by else "timeout",
        label_before=label,
        label_after=label,
        reason=redact_secrets(reason),
        arguments=redact_arguments(arguments),
    )


def _row(connection: Connection, approval_id: str, reader: Reader | None = None) -> Row[Any]:
    query = select(approvals).where(approvals.c.id == approval_id)
    if reader is not None:
        query = query.where(_readable(reader))
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFound(
            f"There is no approval {approval_id}.",
            "`perdure approvals list --all` shows what there is.",
        )
    return row


def _readable(reader: Reader) -> ColumnElement[bool]:
    """That the session of an approval is there for a reader, who may read the call."""
    if reader.sees_all:
        return true()
    there = select(sessions.c.session_key).where(
        sessions.c.session_key == approvals.c.session_key,
        sessions.c.label.in_(up_to(reader.level)),
        seen_by(reader),
    )
    # A reset lowers the session, not what was said before it.
    above = (
        select(messages.c.seq)
        .join(
            steps,
            (steps.c.session_key == messages.c.session_key)
            & (steps.c.message_seq == messages.c.seq),
        )
        .where(
            steps.c.session_key == approvals.c.session_key,
            steps.c.turn == approvals.c.turn,
            steps.c.step == approvals.c.step,
            messages.c.label.not_in(up_to(reader.level)),
        )
    )
    return there.exists() & not_(above.exists())


def _list(
    connection: Connection,
    session_key: str | None,
    state: ApprovalState | None,
    reader: Reader | None,
    limit: int,
    offset: int,
    mark: Mark | None,
) -> ApprovalList:
    conditions = [] if reader is None else [_readable(reader)]
    if session_key is not None:
        conditions.append(approvals.c.session_key == session_key)
    over = approvals.c.expires_at <= now()
    if state is ApprovalState.PENDING:
        conditions += [approvals.c.state == state, not_(over)]
    elif state is ApprovalState.EXPIRED:
        conditions.append(
            or_(approvals.c.state == state, (approvals.c.state == ApprovalState.PENDING) & over)
        )
    elif state is not None:
        conditions.append(approvals.c.state == state)
    query = (
        select(approvals)
        .where(*conditions)
        .order_by(approvals.c.asked_at.desc(), approvals.c.id.desc())
        .limit(limit)
        .offset(offset)
    )
    if mark is not None:
        query = query.where(after(mark, approvals.c.asked_at, approvals.c.id, names_descend=True))
    total = connection.scalar(select(func.count()).select_from(approvals).where(*conditions))
    return ApprovalList(
        approvals=tuple(_read(row) for row in connection.execute(query)),
        total=total or 0,
    )
