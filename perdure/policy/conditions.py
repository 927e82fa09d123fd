"""Whether one rule matches: every condition looked at, the outcome reported.

Invariant: a condition that cannot be decided is never taken for one that does not hold. A field
that is missing fails its condition; a value of a kind that the operator cannot compare is an
error, which the engine answers with BLOCK.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from enum import StrEnum

from pydantic import JsonValue

from perdure.domain.labels import Label
from perdure.domain.messages import Frozen
from perdure.policy import patterns
from perdure.policy.facts import Facts, read_field
from perdure.policy.rules import ORDERED, Condition, Op, Rule, Scalar


class Outcome(StrEnum):
    """What became of a rule."""

    MATCHED = "matched"
    NOT_MATCHED = "not matched"
    FIELD_MISSING = "field missing"
    ERROR = "error"


class RuleOutcome(Frozen):
    """One rule as it was evaluated; `detail` names the field that settled it, never a value."""

    id: str
    outcome: Outcome
    detail: str = ""


def evaluate(rule: Rule, facts: Facts) -> RuleOutcome:
    """Evaluate every condition of `rule`. One that does not hold settles it before an error."""
    missing, failed, errors = [], [], []
    for condition in rule.when:
        try:
            value = read_field(facts, condition.field)
            if value is None:
                missing.append(condition.field)
            elif not _holds(condition, value):
                failed.append(condition.field)
        except Exception as error:  # whatever it was, the rule could not be decided
            errors.append(f"{condition.field}: {error}")
    if missing:
        return RuleOutcome(id=rule.id, outcome=Outcome.FIELD_MISSING, detail=", ".join(missing))
    if failed:
        return RuleOutcome(id=rule.id, outcome=Outcome.NOT_MATCHED, detail=", ".join(failed))
    if errors:
        return RuleOutcome(id=rule.id, outcome=Outcome.ERROR, detail="; ".join(errors))
    return RuleOutcome(id=rule.id, outcome=Outcome.MATCHED)


_ORDER: dict[Op, Callable[[float, float], bool]] = {
    Op.GT: operator.gt,
    Op.GTE: operator.ge,
    Op.LT: operator.lt,
    Op.LTE: operator.le,
}


def _holds(condition: Condition, value: JsonValue) -> bool:
    op, wanted = condition.op, condition.value
    if op is Op.IN:
        if not isinstance(wanted, tuple):
            raise TypeError("in needs a list")
        return any(_same(one, value) for one in wanted)
    if isinstance(wanted, tuple):
        raise TypeError(f"{op} needs one value")
    if op is Op.EQUALS:
        return _same(wanted, value)
    if op is Op.NOT_EQUALS:
        return not _same(wanted, value)
    if op in ORDERED:
        return _ORDER[op](*_ranks(value, wanted))
    if op is Op.CONTAINS and isinstance(value, list):
        return any(_same(wanted, one) for one in value)
    if not isinstance(value, str) or not isinstance(wanted, str):
        raise TypeError(f"{op} cannot look into a {type(value).__name__}")
    return wanted in value if op is Op.CONTAINS else patterns.matches(wanted, value)


def _same(wanted: Scalar, value: JsonValue) -> bool:
    # Python has True == 1; a rule that says 1 does not mean true.
    return isinstance(wanted, bool) is isinstance(value, bool) and wanted == value


def _ranks(value: JsonValue, wanted: Scalar) -> tuple[float, float]:
    if isinstance(value, Label):
        return value.rank, Label(str(wanted)).rank
    numbers = [one for one in (value, wanted) if type(one) in (int, float)]
    if len(numbers) < 2:
        raise TypeError(f"a {type(value).__name__} has no order against the rule's value")
    return numbers[0], numbers[1]  # type: ignore[return-value]
