"""Rules as data: what `perdure.toml` says, once it is known to be right.

Invariant: these are plain values that survive JSON, so that a workflow can be handed the rules
it decides by. `perdure.policy.parsing` is the way from a settings file to here.
"""

from __future__ import annotations

from enum import StrEnum

from perdure.domain.messages import Frozen
from perdure.policy.hooks import Action, Hook

#: What a condition compares with. A value keeps the one type it has: `true` is no number.
Scalar = bool | int | float | str


class Op(StrEnum):
    """How a condition compares a field with its value."""

    EQUALS = "equals"
    NOT_EQUALS = "not_equals"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    CONTAINS = "contains"
    MATCHES = "matches"
    IN = "in"


#: Those that need an order: of levels, or of numbers.
ORDERED = frozenset({Op.GT, Op.GTE, Op.LT, Op.LTE})


class Condition(Frozen):
    """`field op value`; a list of values with `in` only."""

    field: str
    op: Op
    value: Scalar | tuple[Scalar, ...]


class Rule(Frozen):
    """One rule. All of `when` must hold; an empty `when` always does."""

    id: str
    hook: Hook
    #: Higher ones are looked at first; of equals, the id that sorts first.
    priority: int
    when: tuple[Condition, ...]
    action: Action
    #: What a person or a model reads when the rule decides.
    message: str | None = None
    #: What REDACT redacts beside secrets.
    pattern: str | None = None


class Rules(Frozen):
    """All rules of an installation, in any order."""

    rules: tuple[Rule, ...] = ()

    def of(self, hook: Hook) -> tuple[Rule, ...]:
        """The rules of `hook`, in the order in which they are looked at."""
        found = [rule for rule in self.rules if rule.hook is hook]
        return tuple(sorted(found, key=lambda rule: (-rule.priority, rule.id)))


#: No rule at all: the invariants alone.
NO_RULES = Rules()
