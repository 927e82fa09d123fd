"""What waits for a person: listed, decided, recorded, and the session woken.

Invariant: the decision is in the store and in the audit trail before the session looks again.
"""

from __future__ import annotations

import json

from gateway.sight import Sight
from gateway.workflows import SessionWorkflows
from perdure.domain.approvals import Approval, ApprovalList, ApprovalPurpose, ApprovalState
from perdure.domain.errors import Conflict, InvalidArgument
from perdure.domain.keys import SessionKey
from perdure.store import Store
from perdure.store.marks import Mark


class Approving:
    """The approvals that one caller may see and decide."""

    def __init__(self, store: Store, workflows: SessionWorkflows, sight: Sight) -> None:
        self._store = store
        self._workflows = workflows
        self._sight = sight

    async def list(
        self,
        session_key: str | None,
        state: ApprovalState | None,
        limit: int,
        offset: int,
        mark: Mark | None,
    ) -> ApprovalList:
        """See `SessionClient.approvals`."""
        return await self._store.approvals.list(
            session_key=session_key,
            state=state,
            reader=self._sight.reader,
            limit=limit,
            offset=offset,
            mark=mark,
        )

    async def get(self, approval_id: str) -> Approval:
        """See `SessionClient.approval`."""
        return await self._store.approvals.get(approval_id, self._sight.reader)

    async def decide(
        self, approval_id: str, approve: bool, by: str, reason: str, arguments: str | None
    ) -> Approval:
        """See `SessionClient.decide`."""
        if arguments is not None:
            _check(arguments, approve)
        known = await self.get(approval_id)
        try:
            approval = await self._store.approvals.decide(
                approval_id,
                approve=approve,
                by=self._sight.bounds.signed(by),
                note=reason,
                changed=arguments,
            )
        except Conflict:
            # Whoever decided may have died, or lost Temporal, before the session was woken.
            await self._wake(known)
            raise
        await self._wake(approval)
        return approval

    async def _wake(self, approval: Approval) -> None:
        session = await self._store.sessions.get(approval.session_key)
        if approval.purpose is ApprovalPurpose.RELEASE and session is not None:
            # Nothing in it waits, and what was withheld is to come in even if it is closed.
            await self._workflows.wake(SessionKey.parse(session.session_key), session.agent)
        else:
            await self._workflows.approval_decided(approval.session_key)


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
