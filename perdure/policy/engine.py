"""The one place where policy is decided.

Invariant: `decide` answers every question, always the same way, and never raises; what it cannot
evaluate it blocks. Invariants come first and rules only tighten: no rule turns a refusal of an
invariant into anything else, and no redacted text is handed on unless it was checked again.
"""

from __future__ import annotations

from typing import NamedTuple

from pydantic import JsonValue

from perdure.domain.labels import Label
from perdure.domain.messages import Frozen
from perdure.policy import patterns
from perdure.policy.arguments import map_texts, texts_of
from perdure.policy.conditions import Outcome, RuleOutcome, evaluate
from perdure.policy.facts import REDACTABLE, Facts
from perdure.policy.hooks import Action, Hook
from perdure.policy.invariants import EGRESS, Invariant, Violation, label_after, violation
from perdure.policy.rules import NO_RULES, Rule, Rules
from perdure.policy.secrets import find_in_arguments, find_secrets, redact_arguments, redact_secrets

#: `decided_by` when nothing stood against it.
DEFAULT = "default"


class Decision(Frozen):
    """What was decided, by what, and everything that was looked at.

    `text` and `arguments` are what may go on in the place of the asked-about ones: set for
    REDACT, and for REQUIRE_APPROVAL where an approval would let out the redacted text only.
    """

    hook: Hook
    action: Action
    #: `rule:ID`, `invariant:NAME` or `default`.
    decided_by: str
    #: Every rule of the hook, in the order of their priority.
    rules_evaluated: tuple[RuleOutcome, ...] = ()
    label_before: Label
    #: The label once the act is done; as before if it is not to be done now.
    label_after: Label
    reason: str
    text: str | None = None
    arguments: dict[str, JsonValue] | None = None

    @property
    def goes_on(self) -> bool:
        """Whether the act may be done now, with the redacted content if there is one."""
        return self.action in (Action.ALLOW, Action.REDACT)


def decide(facts: Facts, rules: Rules = NO_RULES) -> Decision:
    """The decision on `facts` under `rules`. Pure: ask as often as you like."""
    evaluated: list[RuleOutcome] = []
    try:
        verdict = _verdict(facts, rules, evaluated)
    except Exception as error:
        # Fail closed. The message might quote what was asked about, so its type must do.
        verdict = _refused(
            Violation(Invariant.EVALUATION, f"The policy failed: {type(error).__name__}.")
        )
    done = verdict.action in (Action.ALLOW, Action.REDACT)
    return Decision(
        hook=facts.hook,
        action=verdict.action,
        decided_by=verdict.decided_by,
        rules_evaluated=tuple(evaluated),
        label_before=facts.label,
        label_after=label_after(facts) if done else facts.label,
        reason=verdict.reason,
        text=verdict.text,
        arguments=verdict.arguments,
    )


class _Verdict(NamedTuple):
    action: Action
    decided_by: str
    reason: str
    text: str | None = None
    arguments: dict[str, JsonValue] | None = None


def _verdict(facts: Facts, rules: Rules, evaluated: list[RuleOutcome]) -> _Verdict:
    forbidden = violation(facts)
    by_rule: _Verdict | None = None
    for rule in rules.of(facts.hook):
        outcome = evaluate(rule, facts)
        evaluated.append(outcome)
        if by_rule is None and outcome.outcome in (Outcome.MATCHED, Outcome.ERROR):
            # The first that matches decides; one that failed might have, so it blocks.
            by_rule = _by_rule(rule, outcome, facts)
    if forbidden is not None:
        return _refused(forbidden)
    verdict = by_rule or _Verdict(Action.ALLOW, DEFAULT, "No rule and no invariant forbids it.")
    return _without_secrets(verdict, facts) if facts.hook in EGRESS else verdict


def _by_rule(rule: Rule, outcome: RuleOutcome, facts: Facts) -> _Verdict:
    name = f"rule:{rule.id}"
    if outcome.outcome is Outcome.ERROR:
        return _Verdict(
            Action.BLOCK, name, f"The rule {rule.id} could not be evaluated: {outcome.detail}."
        )
    if rule.action is Action.REDACT:
        return _redacted(rule, name, facts)
    return _Verdict(rule.action, name, rule.message or _SAYS[rule.action].format(rule.id))


_SAYS = {
    Action.ALLOW: "The rule {} allows it.",
    Action.BLOCK: "The rule {} forbids it.",
    Action.REQUIRE_APPROVAL: "The rule {} asks for a person's approval.",
    Action.REDACT: "The rule {} redacts it.",
}


def _redacted(rule: Rule, name: str, facts: Facts) -> _Verdict:
    """The content without what the rule and secret detection find, or BLOCK if some is left."""
    reason = rule.message or _SAYS[Action.REDACT].format(rule.id)
    left = _Verdict(
        Action.BLOCK, name, f"The rule {rule.id} could not redact all of it, so nothing goes on."
    )
    if REDACTABLE.get(facts.hook) == "arguments":
        changed = redact_arguments(
            map_texts(facts.arguments or {}, lambda _, text: _masked(rule, text))
        )
        leaves = [text for _, text in texts_of(changed)]
        if find_in_arguments(changed) or any(_matches(rule, text) for text in leaves):
            return left
        return _Verdict(Action.REDACT, name, reason, arguments=changed)
    text = redact_secrets(_masked(rule, facts.text or ""))
    if find_secrets(text) or _matches(rule, text):
        return left
    return _Verdict(Action.REDACT, name, reason, text=text)


def _masked(rule: Rule, text: str) -> str:
    return text if rule.pattern is None else patterns.redact(rule.pattern, text)


def _matches(rule: Rule, text: str) -> bool:
    return rule.pattern is not None and patterns.matches(rule.pattern, text)


def _without_secrets(verdict: _Verdict, facts: Facts) -> _Verdict:
    """`verdict`, but no credential leaves: allowed text goes redacted, and so does approved."""
    if verdict.action in (Action.BLOCK, Action.REDACT) or facts.text is None:
        return verdict
    found = find_secrets(facts.text)
    if not found:
        return verdict
    text = redact_secrets(facts.text)
    if verdict.action is Action.REQUIRE_APPROVAL:
        return verdict._replace(text=text)
    kinds = ", ".join(dict.fromkeys(one.kind for one in found))
    return _Verdict(
        Action.REDACT,
        f"invariant:{Invariant.SECRET_IN_OUTPUT}",
        f"A credential stood in the text and was redacted: {kinds}.",
        text=text,
    )


def _refused(forbidden: Violation) -> _Verdict:
    return _Verdict(Action.BLOCK, f"invariant:{forbidden.invariant}", forbidden.reason)
