"""A person's decision on a call that waits: checked, recorded, and the session woken.

Invariant: the decision is in the store and in the audit trail before the session looks again.
"""

from __future__ import annotations

import json

from gateway.workflows import SessionWorkflows
from perdure.domain.approvals import Approval, ApprovalPurpose
from perdure.domain.errors import Conflict, InvalidArgument
from perdure.domain.keys import SessionKey
from perdure.store import Store


async def decide(
    store: Store,
    workflows: SessionWorkflows,
    approval_id: str,
    *,
    approve: bool,
    by: str,
    reason: str,
    arguments: str | None,
) -> Approval:
    """See `SessionClient.decide`."""
    if arguments is not None:
        _check(arguments, approve)
    try:
        approval = await store.approvals.decide(
            approval_id, approve=approve, by=by, note=reason, changed=arguments
        )
    except Conflict:
        # Whoever decided may have died, or lost Temporal, before the session was woken.
        await _wake(store, workflows, await store.approvals.get(approval_id))
        raise
    await _wake(store, workflows, approval)
    return approval


async def _wake(store: Store, workflows: SessionWorkflows, approval: Approval) -> None:
    session = await store.sessions.get(approval.session_key)
    if approval.purpose is ApprovalPurpose.RELEASE and session is not None:
        # Nothing in it waits, and what was withheld is to come in even if it is closed.
        await workflows.wake(SessionKey.parse(session.session_key), session.agent)
    else:
        await workflows.approval_decided(approval.session_key)


def _check(arguments: str, approve: bool) -> None:
    if not approve:
        raise InvalidArgument("A denial takes no arguments.", "Leave them out, or approve.")
    try:
        changed = json.loads(arguments)
    except ValueError as error:
        raise InvalidArgument(
            f"The arguments are not JSON: {error}.", "Give a JSON object."
        ) from error
    if not isinstance(changed, dict):
        raise InvalidArgument("The arguments are not a JSON object.", "Give a JSON object.")
