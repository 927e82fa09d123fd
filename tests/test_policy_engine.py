"""Decisions: invariants first, every rule reported, the same answer always, nothing fails open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from perdure.domain.labels import Label, can_flow, join
from perdure.policy import engine
from perdure.policy.conditions import Outcome
from perdure.policy.engine import Decision, decide
from perdure.policy.facts import REDACTABLE, Facts, fields_of
from perdure.policy.hooks import Action, Hook
from perdure.policy.invariants import (
    label_after,
    may_receive,
    may_see,
    may_send,
    output_level,
    violation,
)
from perdure.policy.parsing import parse_rules
from perdure.policy.rules import NO_RULES, Condition, Op, Rule, Rules
from perdure.policy.secrets import find_secrets

KEY = "sk-ant-" + "api03-abcDEF123456789_xyz-QQ"
PUBLIC, INTERNAL, CONFIDENTIAL, RESTRICTED = Label
PAIRS = [(a, b) for a in Label for b in Label]


def facts(hook: Hook = Hook.PRE_TOOL_CALL, **given: Any) -> Facts:
    base = {"session_key": "default:bob", "agent": "main", "label": PUBLIC}
    return Facts(**{"hook": hook, "clearance": CONFIDENTIAL, **base, **given})


def rule(action: Action, priority: int = 100, name: str = "r", **given: Any) -> dict[str, Any]:
    base = {"id": name, "hook": Hook.PRE_TOOL_CALL, "when": []}
    return {**base, "priority": priority, "action": action, **given}


def rules(*tables: dict[str, Any]) -> Rules:
    return parse_rules(list(tables))


def where(field: str, op: str, value: object) -> list[dict[str, object]]:
    return [{"field": field, "op": op, "value": value}]


def matched(field: str, op: str, value: object, **given: Any) -> Outcome:
    hook = given.pop("hook", Hook.PRE_TOOL_CALL)
    only = rules(rule(Action.BLOCK, hook=hook, when=where(field, op, value)))
    return decide(facts(hook, **given), only).rules_evaluated[0].outcome


# Invariants


@pytest.mark.parametrize(("mine", "theirs"), PAIRS)
def test_an_output_flows_up_or_level_and_never_down(mine: Label, theirs: Label) -> None:
    asked = facts(
        Hook.PRE_OUTPUT, label=mine, clearance=RESTRICTED, destination=theirs, text="Hello."
    )
    first, second = decide(asked), decide(asked)
    assert first == second
    assert first.goes_on is (list(Label).index(mine) <= list(Label).index(theirs))
    assert first.decided_by == ("default" if first.goes_on else "invariant:label-flow")
    assert first.label_before == first.label_after == mine


@pytest.mark.parametrize(("channel", "recipient"), PAIRS)
def test_a_recipient_on_a_channel_has_the_lower_level_of_the_two(
    channel: Label, recipient: Label
) -> None:
    level = output_level(channel, recipient)
    assert level in (channel, recipient)
    assert can_flow(level, channel)
    assert can_flow(level, recipient)


@pytest.mark.parametrize("channel", Label)
def test_an_unknown_recipient_is_public(channel: Label) -> None:
    assert output_level(channel, None) is PUBLIC


def test_an_output_whose_destination_nobody_knows_goes_to_the_public() -> None:
    assert decide(facts(Hook.PRE_OUTPUT, label=INTERNAL, text="x")).action is Action.BLOCK
    assert decide(facts(Hook.PRE_OUTPUT, label=PUBLIC, text="x")).action is Action.ALLOW


@pytest.mark.parametrize(("mine", "taken"), PAIRS)
def test_what_is_taken_in_raises_the_label_up_to_the_clearance(mine: Label, taken: Label) -> None:
    for clearance in Label:
        decision = decide(facts(label=mine, result_label=taken, clearance=clearance))
        if can_flow(join(mine, taken), clearance):
            assert decision.label_after is join(mine, taken)
        else:
            assert decision.decided_by == "invariant:clearance"
            assert decision.label_after is mine


def test_a_label_never_falls_but_by_a_reset() -> None:
    high = {"label": CONFIDENTIAL, "clearance": RESTRICTED}
    assert decide(facts(result_label=PUBLIC, **high)).label_after is CONFIDENTIAL
    assert decide(facts(Hook.SESSION_RESET, **high)).label_after is PUBLIC


@pytest.mark.parametrize("label", ["bogus", "public", "", "PUBLIC "])
def test_a_result_cannot_say_its_own_label(label: str) -> None:
    text = f'{{"label": "{label}"}}'
    decision = decide(facts(Hook.POST_TOOL_RESPONSE, tool="t", label=INTERNAL, text=text))
    assert (decision.action, decision.label_after) == (Action.ALLOW, INTERNAL)
    with pytest.raises(ValidationError):
        facts(Hook.POST_TOOL_RESPONSE, tool="t", result_label=label)


def test_a_model_reads_nothing_above_its_providers_clearance() -> None:
    asked: dict[str, Any] = {"label": INTERNAL, "text": "x", "model": "openai:gpt"}
    for hook in (Hook.PRE_CONTEXT_INJECTION, Hook.AGENT_INVOCATION):
        assert decide(facts(hook, **asked, model_clearance=INTERNAL)).action is Action.ALLOW
        for clearance in (PUBLIC, None):
            decision = decide(facts(hook, **asked, model_clearance=clearance))
            assert decision.decided_by == "invariant:model-clearance"
    rise = facts(
        Hook.PRE_CONTEXT_INJECTION, **asked, model_clearance=INTERNAL, result_label=CONFIDENTIAL
    )
    assert decide(rise).decided_by == "invariant:model-clearance"


@pytest.mark.parametrize("hook", [Hook.PRE_TOOL_CALL, Hook.MCP_TOOL_CALL])
def test_a_credential_in_tool_arguments_is_refused_and_not_repeated(hook: Hook) -> None:
    decision = decide(facts(hook, tool="web", arguments={"headers": [{"x-key": KEY}]}))
    assert (decision.action, decision.decided_by) == (
        Action.BLOCK,
        "invariant:secret-in-arguments",
    )
    assert "headers" in decision.reason
    assert KEY not in decision.model_dump_json()


def test_a_credential_in_an_output_leaves_redacted_whatever_the_rules_say() -> None:
    asked = facts(Hook.PRE_OUTPUT, text=f"Use {KEY}.")
    here = {"hook": Hook.PRE_OUTPUT}
    for policy in (NO_RULES, rules(rule(Action.ALLOW, 2_000, **here))):
        decision = decide(asked, policy)
        assert (decision.action, decision.text) == (
            Action.REDACT,
            "Use [REDACTED:anthropic-key].",
        )
        assert decision.decided_by == "invariant:secret-in-output"
    assert decide(asked, rules(rule(Action.BLOCK, **here))).decided_by == "rule:r"
    waiting = decide(asked, rules(rule(Action.REQUIRE_APPROVAL, **here)))
    assert (waiting.action, waiting.text) == (
        Action.REQUIRE_APPROVAL,
        "Use [REDACTED:anthropic-key].",
    )


@pytest.mark.parametrize(("mine", "theirs"), PAIRS)
def test_sessions_see_down_and_send_level_or_up_to_an_intake(mine: Label, theirs: Label) -> None:
    assert may_see(mine, theirs) is can_flow(theirs, mine)
    assert may_send(mine, theirs) is (mine is theirs)
    for intake in Label:
        allowed = can_flow(theirs, mine) and can_flow(mine, join(theirs, intake))
        assert may_send(mine, theirs, intake) is allowed
    for clearance in Label:
        assert may_receive(theirs, mine, clearance) is can_flow(join(mine, theirs), clearance)


# Rules


def test_the_higher_priority_decides_and_every_rule_is_reported() -> None:
    here = where("tool", "equals", "delete")
    policy = rules(
        rule(Action.ALLOW, 50, "allow", when=here),
        rule(Action.BLOCK, 100, "block", when=here, message="Deleting is for people."),
        rule(Action.BLOCK, 10, "other", when=where("tool", "equals", "write")),
        rule(Action.BLOCK, 5, "missing", when=where("args.path", "equals", "x")),
        rule(Action.BLOCK, 500, "elsewhere", hook=Hook.PRE_OUTPUT),
    )
    decision = decide(facts(tool="delete"), policy)
    assert decision.action is Action.BLOCK
    assert decision.decided_by == "rule:block"
    assert decision.reason == "Deleting is for people."
    assert [(one.id, str(one.outcome), one.detail) for one in decision.rules_evaluated] == [
        ("block", "matched", ""),
        ("allow", "matched", ""),
        ("other", "not matched", "tool"),
        ("missing", "field missing", "args.path"),
    ]


def test_rules_are_reported_also_where_an_invariant_decides() -> None:
    asked = facts(Hook.PRE_OUTPUT, label=CONFIDENTIAL, destination=PUBLIC, text="x")
    decision = decide(asked, rules(rule(Action.ALLOW, 2_000, hook=Hook.PRE_OUTPUT)))
    assert (decision.action, decision.decided_by) == (Action.BLOCK, "invariant:label-flow")
    assert [one.outcome for one in decision.rules_evaluated] == [Outcome.MATCHED]


def test_all_conditions_of_a_rule_must_hold() -> None:
    both = where("tool", "equals", "pay") + where("args.amount", "gt", 100)
    policy = rules(rule(Action.REQUIRE_APPROVAL, when=both))
    for tool, amount, action in (
        ("pay", 101, Action.REQUIRE_APPROVAL),
        ("pay", 100, Action.ALLOW),
        ("get", 101, Action.ALLOW),
    ):
        assert decide(facts(tool=tool, arguments={"amount": amount}), policy).action is action


@pytest.mark.parametrize(
    ("op", "value", "held"),
    [
        ("equals", "INTERNAL", [INTERNAL]),
        ("not_equals", "INTERNAL", [PUBLIC, CONFIDENTIAL, RESTRICTED]),
        ("gt", "INTERNAL", [CONFIDENTIAL, RESTRICTED]),
        ("gte", "INTERNAL", [INTERNAL, CONFIDENTIAL, RESTRICTED]),
        ("lt", "INTERNAL", [PUBLIC]),
        ("lte", "INTERNAL", [PUBLIC, INTERNAL]),
        ("in", ["PUBLIC", "RESTRICTED"], [PUBLIC, RESTRICTED]),
    ],
)
def test_levels_compare_by_rank(op: str, value: object, held: list[Label]) -> None:
    for label in Label:
        outcome = matched("label", op, value, label=label, clearance=RESTRICTED)
        assert (outcome is Outcome.MATCHED) is (label in held)


ARGUMENTS = {"n": 5, "yes": True, "to": [{"name": "bob"}, "x"], "a": {"b": "deep"}, "none": None}


@pytest.mark.parametrize(
    ("field", "op", "value", "outcome"),
    [
        ("args.n", "equals", 5, Outcome.MATCHED),
        ("args.n", "equals", 5.0, Outcome.MATCHED),
        ("args.n", "equals", "5", Outcome.NOT_MATCHED),
        ("args.n", "gte", 4.5, Outcome.MATCHED),
        ("args.n", "in", ["x", 5], Outcome.MATCHED),
        ("args.yes", "equals", True, Outcome.MATCHED),
        ("args.yes", "equals", 1, Outcome.NOT_MATCHED),
        ("args.yes", "not_equals", 1, Outcome.MATCHED),
        ("args.a.b", "contains", "ee", Outcome.MATCHED),
        ("args.a.b", "matches", "^d.*p$", Outcome.MATCHED),
        ("args.to", "contains", "x", Outcome.MATCHED),
        ("args.to", "contains", "bob", Outcome.NOT_MATCHED),
        ("args.to.0.name", "equals", "bob", Outcome.MATCHED),
        ("args.to.7", "not_equals", "bob", Outcome.FIELD_MISSING),
        ("args.none", "not_equals", "bob", Outcome.FIELD_MISSING),
        ("args.a.b.c", "not_equals", "bob", Outcome.FIELD_MISSING),
        ("args.to.9999999999", "equals", 1, Outcome.FIELD_MISSING),
        ("args.a.b", "gt", 3, Outcome.ERROR),
        ("args.yes", "gt", 0, Outcome.ERROR),
        ("args.n", "matches", "5", Outcome.ERROR),
        ("args.a", "contains", "b", Outcome.ERROR),
        ("kind", "equals", "dm", Outcome.MATCHED),
        ("sender", "not_equals", "eve", Outcome.FIELD_MISSING),
        ("tool", "matches", "(?i)^DEL", Outcome.MATCHED),
        ("tool", "contains", "let", Outcome.MATCHED),
    ],
)
def test_a_condition_compares_what_can_be_compared(
    field: str, op: str, value: object, outcome: Outcome
) -> None:
    assert matched(field, op, value, tool="delete", arguments=ARGUMENTS) is outcome


def test_a_rule_that_cannot_be_evaluated_blocks_in_its_place() -> None:
    broken = rule(Action.ALLOW, 100, "broken", when=where("args.amount", "gt", 3))
    asked = facts(tool="pay", arguments={"amount": "lots"})
    decision = decide(asked, rules(broken, rule(Action.ALLOW, 50, "later")))
    assert (decision.action, decision.decided_by) == (Action.BLOCK, "rule:broken")
    assert decide(asked, rules(broken, rule(Action.ALLOW, 200, "sooner"))).action is Action.ALLOW
    # Another tool's argument of that name is no matter of this rule.
    both = [*where("args.amount", "gt", 3), *where("tool", "equals", "buy")]
    assert decide(asked, rules(rule(Action.BLOCK, when=both))).action is Action.ALLOW


def test_a_rule_made_without_the_parser_cannot_fail_open() -> None:
    for condition in (
        Condition(field="tool", op=Op.MATCHES, value="("),
        Condition(field="nonsense", op=Op.EQUALS, value="x"),
        Condition(field="label", op=Op.GTE, value="Confidental"),
        Condition(field="tool", op=Op.IN, value="delete"),
    ):
        made = Rule(
            id="r", hook=Hook.PRE_TOOL_CALL, priority=1, when=(condition,), action=Action.ALLOW
        )
        decision = decide(facts(tool="delete"), Rules(rules=(made,)))
        assert (decision.action, decision.decided_by) == (Action.BLOCK, "rule:r")


def test_an_error_of_the_engine_itself_is_block(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Facts) -> None:
        raise RuntimeError(KEY)

    monkeypatch.setattr(engine, "violation", broken)
    decision = decide(facts())
    assert (decision.action, decision.decided_by) == (Action.BLOCK, "invariant:evaluation")
    assert KEY not in decision.reason


def test_a_pattern_made_to_be_slow_is_answered() -> None:
    # A backtracking engine never comes back from this: the test's timeout is the assertion.
    for text in ("a" * 100_000, "a" * 100_000 + "!"):
        outcome = matched("text", "matches", "(a+)+$", hook=Hook.PRE_OUTPUT, text=text)
        assert (outcome is Outcome.MATCHED) is text.endswith("a")


# Redaction


def test_redact_takes_out_the_pattern_and_the_secrets() -> None:
    policy = rules(rule(Action.REDACT, hook=Hook.POST_TOOL_RESPONSE, pattern=r"\d{3}-\d{4}"))
    text = f"Günther: 555-1234, {KEY}, 12-34"
    decision = decide(facts(Hook.POST_TOOL_RESPONSE, tool="t", text=text), policy)
    assert decision.action is Action.REDACT
    assert decision.text == "Günther: [REDACTED], [REDACTED:anthropic-key], 12-34"


def test_redact_of_a_calls_arguments_gives_the_arguments_to_run_with() -> None:
    policy = rules(rule(Action.REDACT, pattern="bob@[a-z.]+"))
    arguments = {"to": ["bob@example.org", 3], "n": {"bob@x.org": None}}
    decision = decide(facts(tool="t", arguments=arguments), policy)
    assert decision.action is Action.REDACT
    assert decision.arguments == {"to": ["[REDACTED]", 3], "n": {"[REDACTED]": None}}
    assert arguments["to"] == ["bob@example.org", 3]


def test_a_redaction_that_leaves_a_match_is_block() -> None:
    # Taking the inner one out brings the outer one to the start of a line.
    policy = rules(rule(Action.REDACT, hook=Hook.PRE_OUTPUT, pattern=r"(?:^|\])abc"))
    decision = decide(facts(Hook.PRE_OUTPUT, text="abcabc"), policy)
    assert (decision.action, decision.decided_by, decision.text) == (Action.BLOCK, "rule:r", None)


def test_redact_without_anything_to_redact_goes_on() -> None:
    policy = rules(rule(Action.REDACT, hook=Hook.PRE_OUTPUT))
    for text in ("Hello.", None):
        decision = decide(facts(Hook.PRE_OUTPUT, text=text), policy)
        assert (decision.action, decision.text) == (Action.REDACT, text or "")


# Over everything


@pytest.mark.parametrize("hook", Hook)
def test_facts_hold_only_what_their_hook_has(hook: Hook) -> None:
    values: dict[str, Any] = {"arguments": {}, "model_clearance": PUBLIC, "destination": PUBLIC}
    allowed = {name.replace("args.", "arguments") for name in fields_of(hook)}
    for name in set(Facts.model_fields) - {"hook", "session_key", "agent", "kind", "label"}:
        value = values.get(name, "PUBLIC")
        if name in allowed:
            assert getattr(facts(hook, **{name: value}), name) == value
        else:
            with pytest.raises(ValidationError, match=name):
                facts(hook, **{name: value})


_words = st.sampled_from(["delete", "write", "", "bob", KEY, "password: hunter2xyz!", "aaaa"])
_labels = st.sampled_from(Label)
_json = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 200) | st.floats() | _words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3),
    max_leaves=5,
)


@st.composite
def _facts(draw: Callable[..., Any]) -> Facts:
    hook = draw(st.sampled_from(Hook))
    given: dict[str, Any] = {"label": draw(_labels), "clearance": draw(_labels)}
    for field in fields_of(hook):
        if field == "args.":
            given["arguments"] = draw(st.none() | st.dictionaries(_words, _json, max_size=3))
        elif field in ("destination", "result_label", "model_clearance"):
            given[field] = draw(st.none() | _labels)
        elif field not in ("session_key", "agent", "kind", "label", "clearance"):
            given[field] = draw(st.none() | _words)
    return facts(hook, **given)


_conditions = st.builds(
    Condition,
    field=st.sampled_from(["tool", "label", "destination", "args.bob", "args.", "text", "no"]),
    op=st.sampled_from(Op),
    value=_words | _labels.map(str) | st.integers(0, 9) | st.just(("delete", "PUBLIC", 3)),
)
#: Rules as nobody would get past the parser, too.
_rules = st.builds(
    lambda found: Rules(rules=tuple(found)),
    st.lists(
        st.builds(
            Rule,
            id=st.sampled_from(["a", "b", "c"]),
            hook=st.sampled_from(Hook),
            priority=st.integers(0, 3),
            when=st.lists(_conditions, max_size=2).map(tuple),
            action=st.sampled_from(Action),
            pattern=st.none() | st.sampled_from(["a+", "(", "x", "bob", ""]),
        ),
        max_size=5,
    ),
)


@settings(max_examples=250, deadline=None)
@given(_facts(), _rules)
def test_decide_never_raises_and_always_says_the_same(asked: Facts, policy: Rules) -> None:
    decision = decide(asked, policy)
    assert decision == decide(asked.model_copy(deep=True), policy)
    assert Decision.model_validate_json(decision.model_dump_json()).action is decision.action
    assert [one.id for one in decision.rules_evaluated] == [one.id for one in policy.of(asked.hook)]
    assert decision.label_after in (decision.label_before, label_after(asked))


@settings(max_examples=200, deadline=None)
@given(_facts(), _rules, st.integers(0, 1_000_000))
def test_no_allow_at_any_priority_undoes_an_invariant(
    asked: Facts, others: Rules, priority: int
) -> None:
    allow = Rule(id="allow", hook=asked.hook, priority=priority, when=(), action=Action.ALLOW)
    decision = decide(asked, Rules(rules=(allow, *others.rules)))
    forbidden = violation(asked)
    if forbidden is not None:
        assert decision.action is Action.BLOCK
        assert decision.decided_by == f"invariant:{forbidden.invariant}"
    if decision.goes_on and asked.hook is Hook.PRE_OUTPUT:
        assert can_flow(asked.label, asked.destination or PUBLIC)
        assert find_secrets(decision.text if decision.text is not None else asked.text or "") == ()


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([*REDACTABLE]), _words, _words)
def test_what_redact_lets_on_holds_neither_match_nor_secret(
    hook: Hook, before: str, after: str
) -> None:
    policy = rules(rule(Action.REDACT, hook=hook, pattern="bob|del"))
    text = f"{before} {after}{before}"
    content: dict[str, Any] = (
        {"text": text} if REDACTABLE[hook] == "text" else {"arguments": {"x": [text]}}
    )
    decision = decide(facts(hook, **content), policy)
    assert decision.action in (Action.REDACT, Action.BLOCK)
    rest = f"{decision.text}{decision.arguments}"
    assert "bob" not in rest
    assert "del" not in rest
    assert find_secrets(rest) == ()
