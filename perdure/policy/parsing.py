"""From a settings file's tables to rules, or to everything that is wrong with them.

Invariant: a rule that could not do what its author meant is refused when it is loaded. Nothing
misspelt is ever taken for a rule that never matches, and so lets pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from difflib import get_close_matches
from enum import StrEnum
from typing import NamedTuple, TypeVar

from perdure.domain.errors import InvalidArgument
from perdure.domain.keys import Kind
from perdure.domain.labels import Label
from perdure.policy import patterns
from perdure.policy.facts import ARGS, LABEL_FIELDS, REDACTABLE, fields_of
from perdure.policy.hooks import Action, Hook
from perdure.policy.rules import ORDERED, Condition, Op, Rule, Rules
from perdure.tools.spec import shown

#: A key path as in `perdure.config`: `("policy", "rules", 2, "when", 0, "op")`.
Path = tuple[str | int, ...]

W = TypeVar("W", bound=StrEnum)

_KEYS = ("id", "hook", "priority", "when", "action", "message", "pattern")
_REQUIRED = _KEYS[:5]
_CONDITION_KEYS = ("field", "op", "value")

_ALL_FIELDS = tuple(dict.fromkeys(name for hook in Hook for name in fields_of(hook)))

#: An id stands in decisions as `rule:ID`, and in file names and commands.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

#: Room to put a rule between any two; a number beyond it is a slip.
MAX_PRIORITY = 1_000_000


class RuleError(NamedTuple):
    """One thing that is wrong, and the key where it is."""

    path: Path
    message: str

    @property
    def dotted(self) -> str:
        """The key as a person writes it: `policy.rules.2.when.0.op`."""
        return ".".join(map(str, self.path))


class RuleErrors(InvalidArgument):
    """Everything that is wrong with a set of rules, in the order of the file."""

    def __init__(self, items: Iterable[RuleError]) -> None:
        self.items = tuple(items)
        super().__init__("\n".join(f"{item.dotted}: {item.message}" for item in self.items))


def parse_rules(raw: object, at: Path = ("policy", "rules")) -> Rules:
    """The rules that `raw`, the tables as TOML or JSON gave them, holds.

    `at` is the key of `raw` in its file; the errors' paths begin with it.

    Raises:
        RuleErrors: naming every error at once.
    """
    parser = _Parser()
    rules = parser.rules(raw, at)
    if parser.errors:
        raise RuleErrors(parser.errors)
    return Rules(rules=tuple(rules))


class _Parser:
    """Collects errors; what could not be read is None, and told already."""

    def __init__(self) -> None:
        self.errors: list[RuleError] = []

    def rules(self, raw: object, at: Path) -> list[Rule]:
        if not isinstance(raw, (list, tuple)):
            self._add(at, f"rules are a list of tables, not {shown(raw)}.")
            return []
        first: dict[str, int] = {}
        found = []
        for index, table in enumerate(raw):
            rule = self._rule(table, (*at, index))
            name = table.get("id") if isinstance(table, dict) else None
            if isinstance(name, str):
                if name in first:
                    self._add(
                        (*at, index, "id"),
                        f"the id {shown(name)} is taken by rule {first[name] + 1} of the file; "
                        "an id names one rule.",
                    )
                first.setdefault(name, index)
            if rule is not None:
                found.append(rule)
        return found

    def _rule(self, table: object, at: Path) -> Rule | None:
        before = len(self.errors)
        if not isinstance(table, dict):
            self._add(at, f"a rule is a table, not {shown(table)}.")
            return None
        tell = self._teller(table.get("id"))
        self._keys(table, at, _KEYS, _REQUIRED, tell)
        self._id(table, at, tell)
        hook = self._word(table, "hook", Hook, at, tell)
        action = self._word(table, "action", Action, at, tell)
        self._priority(table, at, tell)
        when = self._when(table, at, hook, tell)
        for key in ("message", "pattern"):
            if key in table and not (isinstance(table[key], str) and table[key]):
                tell((*at, key), f"{key} is a text that is not empty, not {shown(table[key])}.")
        self._redaction(table, at, hook, action, tell)
        if len(self.errors) > before or hook is None or action is None:
            return None
        return Rule(
            id=table["id"],
            hook=hook,
            priority=table["priority"],
            when=tuple(when),
            action=action,
            message=table.get("message"),
            pattern=table.get("pattern"),
        )

    def _id(self, table: dict[str, object], at: Path, tell: _Tell) -> None:
        name = table.get("id")
        if "id" in table and not (isinstance(name, str) and _ID.fullmatch(name)):
            tell(
                (*at, "id"),
                f"the id {shown(name)} cannot be used; it is 1 to 64 letters, digits, '.', '_' "
                "or '-', a letter or digit first.",
            )

    def _priority(self, table: dict[str, object], at: Path, tell: _Tell) -> None:
        value = table.get("priority")
        if "priority" in table and not (type(value) is int and 0 <= value <= MAX_PRIORITY):
            tell(
                (*at, "priority"),
                f"priority is a whole number from 0 to {MAX_PRIORITY}, not {shown(value)}.",
            )

    def _redaction(
        self,
        table: dict[str, object],
        at: Path,
        hook: Hook | None,
        action: Action | None,
        tell: _Tell,
    ) -> None:
        pattern = table.get("pattern")
        if action is not None and action is not Action.REDACT and "pattern" in table:
            tell((*at, "pattern"), f"pattern belongs to REDACT; the action is {action}.")
        if action is Action.REDACT and hook is not None and hook not in REDACTABLE:
            able = ", ".join(REDACTABLE)
            tell((*at, "action"), f"{hook} has nothing to redact; these hooks have: {able}.")
        if isinstance(pattern, str) and pattern and self._pattern(pattern, (*at, "pattern"), tell):
            if patterns.matches(pattern, ""):
                tell((*at, "pattern"), f"{shown(pattern)} matches the empty text, everywhere.")
            elif patterns.matches(pattern, patterns.MARK):
                tell(
                    (*at, "pattern"),
                    f"{shown(pattern)} matches {patterns.MARK}, which stands for what is "
                    "redacted, so it would never be gone.",
                )

    def _when(
        self, table: dict[str, object], at: Path, hook: Hook | None, tell: _Tell
    ) -> list[Condition]:
        when = table.get("when", [])
        if not isinstance(when, (list, tuple)):
            tell((*at, "when"), f"when is a list of {{field, op, value}}, not {shown(when)}.")
            return []
        conditions = (
            self._condition(one, (*at, "when", index), hook, tell) for index, one in enumerate(when)
        )
        return [condition for condition in conditions if condition is not None]

    def _condition(
        self, table: object, at: Path, hook: Hook | None, tell: _Tell
    ) -> Condition | None:
        if not isinstance(table, dict):
            tell(at, f"a condition is a table {{field, op, value}}, not {shown(table)}.")
            return None
        self._keys(table, at, _CONDITION_KEYS, _CONDITION_KEYS, tell)
        op = self._word(table, "op", Op, at, tell)
        field = self._field(table, at, hook, tell)
        if op is None or field is None or "value" not in table:
            return None
        value = table["value"]
        problem = _value_problem(field, op, value)
        if problem:
            tell((*at, "value"), problem)
            return None
        if op is Op.MATCHES and not self._pattern(value, (*at, "value"), tell):
            return None
        return Condition(field=field, op=op, value=tuple(value) if op is Op.IN else value)

    def _field(
        self, table: dict[str, object], at: Path, hook: Hook | None, tell: _Tell
    ) -> str | None:
        if "field" not in table:
            return None
        field = table["field"]
        # Without a hook, its own error being told, any hook's field will do.
        known = fields_of(hook) if hook is not None else _ALL_FIELDS
        if isinstance(field, str):
            path = field.split(".")
            if ARGS in known and path[0] == "args" and len(path) > 1 and all(path):
                return field
            if field in known and field != ARGS:
                return field
        words = [f"{name}NAME" if name == ARGS else name for name in known]
        where = f" at {hook}" if hook is not None else ""
        tell(
            (*at, "field"),
            f"there is no field {shown(field)}{where}.{_near(field, words)} "
            f"Fields are {', '.join(words)}.",
        )
        return None

    def _pattern(self, pattern: str, path: Path, tell: _Tell) -> bool:
        try:
            patterns.compiled(pattern)
        except ValueError as error:
            tell(
                path,
                f"{shown(pattern)} is no RE2 pattern: {error}. RE2 has no look-around and no "
                "back-references.",
            )
            return False
        return True

    def _keys(
        self,
        table: dict[str, object],
        at: Path,
        known: tuple[str, ...],
        required: Collection[str],
        tell: _Tell,
    ) -> None:
        for key in table:
            if key not in known:
                near = _near(key, known)
                tell((*at, key), f"unknown key {shown(key)}.{near} Keys are {', '.join(known)}.")
        for key in required:
            if key not in table:
                tell(at, f"the key {key} is missing.")

    def _word(
        self, table: dict[str, object], key: str, words: type[W], at: Path, tell: _Tell
    ) -> W | None:
        if key not in table:
            return None
        value = table[key]
        if isinstance(value, str) and value in set(words):
            return words(value)
        tell(
            (*at, key),
            f"unknown {key} {shown(value)}.{_near(value, words)} It is one of {', '.join(words)}.",
        )
        return None

    def _teller(self, name: object) -> _Tell:
        who = f"rule {shown(name)}: " if name is not None else ""

        def tell(path: Path, message: str) -> None:
            self._add(path, who + message)

        return tell

    def _add(self, path: Path, message: str) -> None:
        self.errors.append(RuleError(path, message))


_Tell = Callable[[Path, str], None]


def _value_problem(field: str, op: Op, value: object) -> str | None:
    """What is wrong with the value of `field op value`."""
    if op is Op.IN:
        if not isinstance(value, (list, tuple)) or not value:
            return f"`in` needs a list of values that is not empty, not {shown(value)}."
        problems = (_value_problem(field, Op.EQUALS, one) for one in value)
        return next((problem for problem in problems if problem), None)
    if field in LABEL_FIELDS:
        if op in (Op.CONTAINS, Op.MATCHES):
            return f"`{op}` compares text, and {field} is a level: use equals, gt, gte, lt or lte."
        return _not_among(Label, value, f"{field} is compared with a level")
    if op in ORDERED:
        if not field.startswith(ARGS):
            return f"`{op}` needs an order, and {field} has none: it works on levels and args."
        return None if _is_number(value) else f"`{op}` needs a number, not {shown(value)}."
    if op is Op.MATCHES or (op is Op.CONTAINS and not field.startswith(ARGS)):
        return _not_text(op, value)
    if op is Op.CONTAINS and value == "":
        return _not_text(op, value)
    if field == "kind":
        return _not_among(Kind, value, "kind is compared with a kind of session")
    if field.startswith(ARGS):
        fits = isinstance(value, (bool, int, str)) or _is_number(value)
        return None if fits else f"a value is text, a number or true/false, not {shown(value)}."
    return None if isinstance(value, str) else f"{field} is text, and the value {shown(value)} not."


def _not_text(op: Op, value: object) -> str | None:
    fits = isinstance(value, str) and value
    return None if fits else f"`{op}` needs a text that is not empty, not {shown(value)}."


def _not_among(words: type[StrEnum], value: object, what: str) -> str | None:
    if isinstance(value, str) and value in set(words):
        return None
    return f"{what}, not {shown(value)}.{_near(value, words)} It is one of {', '.join(words)}."


def _is_number(value: object) -> bool:
    # Infinity and NaN, which TOML has, order nothing.
    return type(value) is int or (type(value) is float and abs(value) < float("inf"))


def _near(value: object, words: Iterable[str]) -> str:
    if not isinstance(value, str):
        return ""
    folded = {word.casefold(): word for word in words}
    near = get_close_matches(value.casefold(), folded, n=1)
    return f" Did you mean {folded[near[0]]}?" if near else ""
