"""How policy is asked: the facts of a question, the rules of the installation, what is recorded.

Invariant: who acts, and at which label, is read off the request; nothing that was asked lets a
secret into the audit trail.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import JsonValue

from perdure.audit import AuditEntry
from perdure.config import AgentSettings, Settings
from perdure.domain.keys import SessionKey
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen, ToolCall
from perdure.domain.steps import StepRequest, ToolRequest
from perdure.policy.engine import Decision, decide
from perdure.policy.facts import Facts
from perdure.policy.hooks import Hook
from perdure.policy.rules import Rule, Rules
from perdure.policy.secrets import redact_arguments


class Judged(Frozen):
    """Text that was judged: what may go on of it, and what was recorded."""

    text: str
    goes_on: bool
    reason: str = ""
    entries: tuple[AuditEntry, ...] = ()


class Asking:
    """Puts questions to the policy of one installation."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._rules = Rules(rules=settings.policy.rules)

    def rules_of(self, hook: Hook) -> tuple[Rule, ...]:
        """The rules of a hook, in the order in which they are asked."""
        return self._rules.of(hook)

    def facts(self, hook: Hook, request: StepRequest | ToolRequest, **more: Any) -> Facts:
        """The question of `hook` about an act of a turn."""
        return Facts(
            hook=hook,
            session_key=request.session_key,
            agent=request.agent,
            kind=SessionKey.parse(request.session_key).kind,
            label=request.label,
            clearance=self.clearance(request.agent, request.label),
            **more,
        )

    def clearance(self, agent: str, label: Label) -> Label:
        """The ceiling of an agent's sessions; of an agent that is gone, the `label` it has."""
        known: AgentSettings | None = self.settings.agents.get(agent)
        return known.clearance if known else label

    def decide(self, facts: Facts) -> Decision:
        """The answer of the policy."""
        return decide(facts, self._rules)

    def entry(
        self,
        decision: Decision,
        request: StepRequest | ToolRequest,
        arguments: dict[str, JsonValue] | None = None,
    ) -> AuditEntry:
        """What is recorded of a decision in a turn; arguments without their secrets."""
        return self.recorded(
            decision,
            request.session_key,
            turn=request.turn,
            step=request.step,
            arguments=arguments,
        )

    def recorded(
        self,
        decision: Decision,
        session_key: str,
        *,
        turn: int | None = None,
        step: int | None = None,
        arguments: dict[str, JsonValue] | None = None,
    ) -> AuditEntry:
        """What is recorded of a decision; arguments without their secrets."""
        return AuditEntry(
            hook=decision.hook,
            session_key=session_key,
            turn=turn,
            step=step,
            decision=decision.action,
            decided_by=decision.decided_by,
            rules_evaluated=tuple(
                rule.model_dump(mode="json") for rule in decision.rules_evaluated
            ),
            label_before=decision.label_before,
            label_after=decision.label_after,
            reason=decision.reason,
            arguments=redact_arguments(arguments or {}),
        )


def arguments_of(call: ToolCall) -> dict[str, JsonValue] | None:
    """The arguments of a call as an object, None if they are none."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except ValueError:
        return None
    return arguments if isinstance(arguments, dict) else None
