"""Approvals: a person's word on one exact tool call.

Invariant: an approval is bound to the call by a digest of tool and arguments; it says nothing of
any other call, nor of the same call with other arguments.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum

from perdure.domain.messages import Frozen, ToolCall


class ApprovalState(StrEnum):
    """What has become of an approval; all but `pending` are final."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    #: Nobody decided in time, which denies.
    EXPIRED = "expired"
    #: The turn ended before anybody decided.
    WITHDRAWN = "withdrawn"


class ApprovalPurpose(StrEnum):
    """What is approved."""

    #: That a call runs, which waits for it.
    CALL = "call"
    #: That the session takes in what came of a call and was withheld; nothing waits for it.
    RELEASE = "release"


class Approval(Frozen):
    """A tool call that waits for a person, or waited; or what was withheld from it.

    `arguments` is what the model asked for, as JSON text; `changed` is what the person approved
    instead, if it was not that.
    """

    id: str
    session_key: str
    turn: int
    step: int
    call: int
    purpose: ApprovalPurpose = ApprovalPurpose.CALL
    tool: str
    arguments: str
    digest: str
    asked_by: str
    reason: str
    state: ApprovalState
    asked_at: datetime
    expires_at: datetime
    decided_at: datetime | None = None
    decided_by: str | None = None
    note: str | None = None
    changed: str | None = None


class ApprovalList(Frozen):
    """One page of approvals, newest first, and how many there are in all."""

    approvals: tuple[Approval, ...]
    total: int


def digest_of(call: ToolCall) -> str:
    """What an approval of `call` is bound to."""
    return hashlib.sha256(f"{call.name}\n{call.arguments}".encode()).hexdigest()
