"""Rules are right or refused when they are loaded: every error at once, with its key."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.policy.facts import ARGS, Facts, fields_of
from perdure.policy.hooks import Action, Hook
from perdure.policy.parsing import RuleErrors, parse_rules
from perdure.policy.rules import NO_RULES, Op, Rules


def table(**changes: Any) -> dict[str, Any]:
    """A right rule, changed; a key changed to None is left out."""
    whole = {
        "id": "no-delete",
        "hook": "PRE_TOOL_CALL",
        "priority": 100,
        "when": [{"field": "tool", "op": "equals", "value": "delete"}],
        "action": "BLOCK",
        **changes,
    }
    return {key: value for key, value in whole.items() if value is not None}


def when(field: object, op: object, value: object) -> list[dict[str, object]]:
    return [{"field": field, "op": op, "value": value}]


def errors(*tables: object) -> dict[str, str]:
    with pytest.raises(RuleErrors) as caught:
        parse_rules(list(tables))
    return {item.dotted: item.message for item in caught.value.items}


def test_a_right_rule_is_read_and_survives_json() -> None:
    rules = parse_rules(
        [
            table(),
            table(id="b", when=when("args.n", "in", [1, True, 2.5, "x"]), message="Not now."),
            table(id="c", hook="POST_TOOL_RESPONSE", action="REDACT", pattern=r"\d{16}"),
            table(id="d", hook="PRE_OUTPUT", action="REDACT", when=[]),
        ]
    )
    assert Rules.model_validate_json(rules.model_dump_json()) == rules
    value = rules.rules[1].when[0].value
    assert isinstance(value, tuple)
    assert [type(one) for one in value] == [int, bool, float, str]


def test_rules_come_by_priority_and_then_by_id() -> None:
    rules = parse_rules(
        [table(id="b", priority=5), table(id="a", priority=5), table(id="z", priority=9)]
    )
    assert [rule.id for rule in rules.of(Hook.PRE_TOOL_CALL)] == ["z", "a", "b"]
    assert rules.of(Hook.PRE_OUTPUT) == ()


@pytest.mark.parametrize(
    ("wrong", "key", "words"),
    [
        (table(hook="PRE_TOOL_CAL"), "hook", ["'PRE_TOOL_CAL'", "Did you mean PRE_TOOL_CALL?"]),
        (table(hook="pre_output"), "hook", ["Did you mean PRE_OUTPUT?", "SESSION_RESET"]),
        (table(action="DENY"), "action", ["'DENY'", "ALLOW, BLOCK, REDACT, REQUIRE_APPROVAL"]),
        (table(action=["BLOCK"]), "action", ["['BLOCK']"]),
        (table(priority="100"), "priority", ["whole number", "'100'"]),
        (table(priority=True), "priority", ["True"]),
        (table(priority=-1), "priority", ["-1"]),
        (table(priority=10.0), "priority", ["10.0"]),
        (table(id="no delete"), "id", ["'no delete'"]),
        (table(id=7), "id", ["7"]),
        (table(mesage="x"), "mesage", ["unknown key", "Did you mean message?"]),
        (table(message=3), "message", ["3"]),
        (table(pattern="x"), "pattern", ["REDACT", "BLOCK"]),
        (table(when={}), "when", ["list"]),
        (table(when=["x"]), "when.0", ["table"]),
        (table(when=[{"field": "tool", "op": "equals"}]), "when.0", ["value", "missing"]),
        (table(when=[{**when("tool", "equals", "x")[0], "negate": True}]), "when.0.negate", []),
        (
            table(when=when("tool", "equal", "x")),
            "when.0.op",
            ["rule 'no-delete'", "'equal'", "Did you mean equals?", "not_equals", "matches"],
        ),
        (table(when=when("tol", "equals", "x")), "when.0.field", ["Did you mean tool?", "args."]),
        (table(when=when("arguments", "equals", "x")), "when.0.field", ["args.NAME"]),
        (table(when=when("args.", "equals", "x")), "when.0.field", []),
        (table(when=when("args.a..b", "equals", "x")), "when.0.field", []),
        (table(when=when("text", "contains", "x")), "when.0.field", ["PRE_TOOL_CALL"]),
        (table(when=when("hook", "equals", "x")), "when.0.field", []),
        (
            table(when=when("label", "gte", "Confidental")),
            "when.0.value",
            ["'Confidental'", "Did you mean CONFIDENTIAL?", "PUBLIC, INTERNAL"],
        ),
        (table(when=when("label", "gte", 2)), "when.0.value", ["PUBLIC"]),
        (table(when=when("label", "in", ["PUBLIC", "SECRET"])), "when.0.value", ["'SECRET'"]),
        (table(when=when("label", "matches", "CONF.*")), "when.0.value", ["level"]),
        (table(when=when("tool", "gt", 3)), "when.0.value", ["order"]),
        (table(when=when("tool", "equals", 3)), "when.0.value", ["text"]),
        (table(when=when("tool", "in", [])), "when.0.value", ["list"]),
        (table(when=when("tool", "in", "delete")), "when.0.value", ["list"]),
        (table(when=when("tool", "equals", ["a"])), "when.0.value", ["text"]),
        (table(when=when("tool", "contains", "")), "when.0.value", ["empty"]),
        (table(when=when("kind", "equals", "subagent")), "when.0.value", ["sub-agent"]),
        (table(when=when("args.n", "gt", "3")), "when.0.value", ["number"]),
        (table(when=when("args.n", "gt", True)), "when.0.value", ["number"]),
        (table(when=when("args.n", "gt", float("nan"))), "when.0.value", ["number"]),
        (table(when=when("args.n", "equals", {"a": 1})), "when.0.value", []),
        (table(when=when("tool", "matches", "(")), "when.0.value", ["RE2", "'('"]),
        (table(when=when("tool", "matches", "(?=x)")), "when.0.value", ["RE2", "look-around"]),
        (table(when=when("tool", "matches", r"(a)\1")), "when.0.value", ["RE2"]),
        (table(when=when("tool", "matches", "\ud800")), "when.0.value", ["RE2"]),
        (table(when=when("tool", "matches", "x" * 1_001)), "when.0.value", ["1000"]),
        (table(when=when("tool", "matches", r"(\pL{0,30}x){0,30}")), "when.0.value", ["RE2"]),
        (table(action="REDACT", pattern="("), "pattern", ["RE2"]),
        (table(action="REDACT", pattern="a*"), "pattern", ["empty text"]),
        (table(action="REDACT", pattern="[A-Z]+"), "pattern", ["[REDACTED]"]),
        (table(action="REDACT", pattern=""), "pattern", ["empty"]),
        (
            table(hook="SESSION_RESET", action="REDACT", when=[]),
            "action",
            ["nothing to redact", "PRE_OUTPUT"],
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_key_and_the_allowed_words(
    wrong: dict[str, Any], key: str, words: list[str]
) -> None:
    found = errors(table(id="right"), wrong)
    assert list(found) == [f"policy.rules.1.{key}"]
    for word in words:
        assert word in found[f"policy.rules.1.{key}"]


@pytest.mark.parametrize("key", ["id", "hook", "priority", "when", "action"])
def test_a_missing_key_is_named(key: str) -> None:
    assert f"the key {key} is missing" in errors(table(**{key: None}))["policy.rules.0"]


def test_an_id_taken_twice_is_refused_at_the_second_place() -> None:
    found = errors(table(), table(id="other"), table())
    assert list(found) == ["policy.rules.2.id"]
    assert "'no-delete'" in found["policy.rules.2.id"]
    assert "rule 1" in found["policy.rules.2.id"]


def test_all_errors_are_told_at_once_even_beside_an_unknown_hook() -> None:
    conditions = when("label", "gte", "Confidental") + when("tool", "equal", "x")
    found = errors(
        table(hook="NOPE", action="STOP", when=conditions), "a rule", table(id="b", priority="")
    )
    assert list(found) == [
        "policy.rules.0.hook",
        "policy.rules.0.action",
        "policy.rules.0.when.0.value",
        "policy.rules.0.when.1.op",
        "policy.rules.1",
        "policy.rules.2.priority",
    ]


def test_a_pattern_that_stalls_others_is_fine() -> None:
    rules = parse_rules([table(when=when("tool", "matches", "(a+)+$"))])
    assert rules.rules[0].when[0].value == "(a+)+$"


@pytest.mark.parametrize("raw", [{}, "x", None, 3])
def test_rules_that_are_no_list_are_refused(raw: object) -> None:
    with pytest.raises(RuleErrors, match="rules are a list of tables"):
        parse_rules(raw)


def test_no_rules_are_rules() -> None:
    assert parse_rules([]) == NO_RULES


@pytest.mark.parametrize("hook", Hook)
def test_every_field_of_a_hook_can_be_given_to_it_and_named_in_a_rule(hook: Hook) -> None:
    for field in fields_of(hook):
        assert field == ARGS or field in Facts.model_fields
        name = "args.x" if field == ARGS else field
        value = {"kind": "dm"}.get(field, "PUBLIC")
        parse_rules([table(hook=hook, when=when(name, "equals", value))])


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
_near_rules = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["a", "b"]) | _json,
        "hook": st.sampled_from([*map(str, Hook)]) | _json,
        "priority": st.integers(-1, 3) | _json,
        "action": st.sampled_from([*map(str, Action)]) | _json,
        "pattern": st.sampled_from(["x+", "(", "a*"]) | _json,
        "when": _json
        | st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "field": st.sampled_from(["tool", "label", "args.a", "text"]) | _json,
                    "op": st.sampled_from([*map(str, Op)]) | _json,
                    "value": st.sampled_from(["PUBLIC", "x", 3, True, ["x"]]) | _json,
                },
            ),
            max_size=3,
        ),
    },
)


@settings(max_examples=150, deadline=None)
@given(st.lists(_near_rules, max_size=4) | _json)
def test_whatever_stands_in_the_file_is_rules_or_rule_errors(raw: object) -> None:
    result: Rules | RuleErrors
    try:
        result = parse_rules(raw)
    except RuleErrors as error:
        result = error
    if isinstance(result, RuleErrors):
        assert {item.path[:2] for item in result.items} == {("policy", "rules")}
    else:
        assert isinstance(raw, list)
        assert len(result.rules) == len(raw)
