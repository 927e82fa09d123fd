"""Sending between sessions, as an installation has it: its terms, and what is recorded of refusals.

Invariant: the audit trail is told the true reason, and nobody else.
"""

from __future__ import annotations

from perdure.audit import AuditEntry
from perdure.config import Settings
from perdure.domain.exchanges import Mode
from perdure.domain.labels import Label
from perdure.policy.hooks import Action
from perdure.policy.invariants import Invariant
from perdure.store.addressing import Ceilings, Terms, Unreachable, WriteDown

#: The name under which refusals to send stand in the audit trail.
HOOK = "SESSION_SEND"


def terms_of(settings: Settings) -> Terms:
    """The terms of an installation."""

    def ceilings_of(agent: str) -> Ceilings:
        known = settings.agents.get(agent)
        if known is None:
            # An agent that is no longer configured answers nothing, and keeps what it has.
            return Ceilings(None, Label.RESTRICTED)
        return Ceilings(known.intake, known.clearance)

    return Terms(settings.limits, ceilings_of, settings.policy.approval_timeout)


def refusal_entry(
    error: Unreachable | WriteDown,
    sender: str,
    target: str,
    label: Label,
    mode: Mode,
    *,
    turn: int | None = None,
    step: int | None = None,
) -> AuditEntry:
    """What is recorded when a session that is `label` may not send to another."""
    return AuditEntry(
        hook=HOOK,
        session_key=sender,
        turn=turn,
        step=step,
        decision=Action.BLOCK,
        decided_by=f"invariant:{Invariant.LABEL_FLOW}",
        label_before=label,
        label_after=label,
        reason=error.why,
        arguments={"session_key": target, "mode": mode},
    )
