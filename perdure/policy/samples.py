"""Sample calls: questions to the policy with the answers that are expected, as a file has them.

Invariant: a sample that was read asks exactly what a hook can ask; what is wrong with one is told
with its key, and never left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from perdure.domain.errors import InvalidArgument
from perdure.domain.keys import SessionKey
from perdure.domain.messages import Frozen
from perdure.policy.engine import Decision, decide
from perdure.policy.facts import ARGS, Facts, fields_of
from perdure.policy.hooks import Action, Hook
from perdure.policy.parsing import Path, RuleError, RuleErrors
from perdure.policy.rules import Rules
from perdure.tools.spec import shown

#: What a sample need not say.
DEFAULTS: dict[str, Any] = {
    "session_key": "default:sample",
    "agent": "main",
    "label": "PUBLIC",
    "clearance": "CONFIDENTIAL",
}
_ARGUMENTS = ARGS.removesuffix(".")
_OWN = ("name", "hook", "expect", "decided_by")


class Sample(Frozen):
    """One question, and the answer it should have; `decided_by` None is anything."""

    name: str
    facts: Facts
    expect: Action
    decided_by: str | None = None


class Trial(Frozen):
    """A sample with the decision that it came to."""

    sample: Sample
    decision: Decision

    @property
    def passed(self) -> bool:
        """Whether the decision is the expected one, by whom it was expected."""
        expected = self.sample.decided_by
        same = self.decision.action is self.sample.expect
        return same and expected in (None, self.decision.decided_by)


def run_samples(samples: Iterable[Sample], rules: Rules) -> tuple[Trial, ...]:
    """Ask the engine every sample, as a session would."""
    return tuple(Trial(sample=one, decision=decide(one.facts, rules)) for one in samples)


def parse_samples(raw: object, at: Path = ("samples",)) -> tuple[Sample, ...]:
    """The samples that `raw`, the tables as TOML or JSON gave them, holds.

    A table has `hook`, `expect`, and the fields of its hook, `args` being a table of the tool's
    arguments; `name` and `decided_by` as it likes. The rest is as `DEFAULTS` has it.

    Raises:
        RuleErrors: naming every error at once.
    """
    if not isinstance(raw, (list, tuple)):
        raise RuleErrors([RuleError(at, f"samples are a list of tables, not {shown(raw)}.")])
    errors: list[RuleError] = []
    samples = []
    for index, table in enumerate(raw):
        here = (*at, index)
        if not isinstance(table, dict):
            errors.append(RuleError(here, f"a sample is a table, not {shown(table)}."))
            continue
        wrong = _errors(table, here)
        errors += wrong
        if not wrong:
            try:
                samples.append(_sample(table, index))
            except ValidationError as error:
                errors += _invalid(error, here)
            except InvalidArgument as error:
                errors.append(RuleError((*here, "session_key"), str(error)))
    if errors:
        raise RuleErrors(errors)
    return tuple(samples)


def sample_fields(hook: Hook) -> tuple[str, ...]:
    """What a sample of `hook` may say, beside what every sample has."""
    return tuple(_ARGUMENTS if name == ARGS else name for name in fields_of(hook))


def _errors(table: dict[str, Any], at: Path) -> list[RuleError]:
    errors = []
    for key, words in (("hook", Hook), ("expect", Action)):
        if key not in table:
            errors.append(RuleError(at, f"the key {key} is missing."))
        elif (problem := _not_among(key, table[key], words)) is not None:
            errors.append(RuleError((*at, key), problem))
    if errors:
        return errors
    hook = Hook(table["hook"])
    known = (*_OWN, *sample_fields(hook))
    for key in table:
        if key not in known:
            text = f"{hook} has no field {shown(key)}.{_near(key, known)}"
            errors.append(RuleError((*at, key), f"{text} Keys are {', '.join(known)}."))
    for key in ("name", "decided_by"):
        if not isinstance(table.get(key, ""), str):
            errors.append(RuleError((*at, key), f"{key} is a text, not {shown(table[key])}."))
    return errors


def _sample(table: dict[str, Any], index: int) -> Sample:
    fields = {name: value for name, value in table.items() if name not in _OWN}
    if _ARGUMENTS in fields:
        fields["arguments"] = fields.pop(_ARGUMENTS)
    values = DEFAULTS | fields
    if "kind" not in values:
        values["kind"] = SessionKey.parse(str(values["session_key"])).kind
    return Sample(
        name=table.get("name", f"sample {index + 1}"),
        facts=Facts.model_validate({"hook": table["hook"], **values}),
        expect=Action(table["expect"]),
        decided_by=table.get("decided_by"),
    )


def _invalid(error: ValidationError, at: Path) -> list[RuleError]:
    """The errors of the facts, by the keys that a sample has."""
    found = []
    for one in error.errors():
        first, *rest = one["loc"] or ("",)
        key = _ARGUMENTS if first == "arguments" else first
        what = one["msg"].replace("Input should be", "must be")
        found.append(RuleError((*at, key, *rest), f"{key} = {shown(one['input'])} {what}."))
    return found


def _not_among(key: str, value: object, words: type[StrEnum]) -> str | None:
    if isinstance(value, str) and value in set(words):
        return None
    near = _near(value, words)
    return f"unknown {key} {shown(value)}.{near} It is one of {', '.join(words)}."


def _near(value: object, words: Iterable[str]) -> str:
    near = get_close_matches(value, list(words), n=1) if isinstance(value, str) else []
    return f" Did you mean {near[0]}?" if near else ""
