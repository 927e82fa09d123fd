"""The settings that say where information may flow: refused with their place, listed without
their secrets.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.config import effective
from tests.support.settings import load, refused

RULES = """\
[[policy.rules]]
id = "a"
hook = "PRE_OUTPUT"
priority = 1
when = [
  { field = "text", op = "matches", value = "(a+)+$" },
]
action = "BLOCK"

[[policy.rules]]
id = "b"
hook = "PRE_TOOL_CALL"
priority = 1
when = [{ field = "label", op = "gte", value = "CONFIDENTIAL" }]
action = "REQUIRE_APPROVAL"
"""


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ('"gte"', '"equal"', "line 14: policy.rules.1.when.0.op: rule 'b': unknown op 'equal'. "
         "Did you mean equals? It is one of equals, not_equals, gt, gte, lt, lte, contains, "
         "matches, in."),
        ('"CONFIDENTIAL"', '"Confidental"', "line 14: policy.rules.1.when.0.value: rule 'b': label "
         "is compared with a level, not 'Confidental'. Did you mean CONFIDENTIAL? It is one of "
         "PUBLIC, INTERNAL, CONFIDENTIAL, RESTRICTED."),
        ('id = "b"', 'id = "a"', "line 11: policy.rules.1.id: the id 'a' is taken by rule 1 of"),
        ('"PRE_TOOL_CALL"', '"PRE_TOOL"', "line 12: policy.rules.1.hook: rule 'b': unknown hook "
         "'PRE_TOOL'. Did you mean PRE_TOOL_CALL? It is one of PRE_CONTEXT_INJECTION, "),
        ('"(a+)+$"', '"(?=a)"', "line 5: policy.rules.0.when.0.value: rule 'a': '(?=a)' is no RE2"),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_told_with_its_line_and_the_allowed_words(
    tmp_path: Path, right: str, wrong: str, told: str
) -> None:
    assert [rule.id for rule in load(tmp_path, RULES).policy.rules] == ["a", "b"]
    message = refused(tmp_path, RULES.replace(right, wrong))
    assert f"{tmp_path / 'perdure.toml'}, {told}" in message


def test_all_that_is_wrong_with_rules_is_told_together_with_the_rest(tmp_path: Path) -> None:
    told = refused(tmp_path, RULES.replace("PRE_", "POST_") + "[limits]\ninbox = 0\n")
    assert told.startswith("3 settings are wrong:")


HOOK = 'url = "webhook+https://example.org/TOKEN"\n'


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        ('[channels.ops]\nurl = "nonsense"', "line 1: channels.ops is refused: its url must be"),
        (f"[channels.ops]\n{HOOK}", "line 1: channels.ops is a webhook and must have a secret"),
        (f'[channels.ops]\n{HOOK}secret = "short"', "must have a secret of 16 characters"),
        ("[channels.ops]\nurl = 3", 'line 2: channels.ops.url = "***" must be a valid string'),
        (
            "[channels.ops]",
            "line 1: channels.ops.url is missing. Set it there, or in PERDURE_CHANNELS_OPS_URL.",
        ),
        (f'[channels.ops]\n{HOOK}level = "LOW"', 'line 3: channels.ops.level = "LOW" must be one'),
        (f"[channels.ops]\n{HOOK}levle = 1", "line 3: channels.ops.levle is not a key of"),
        ('[tools.read]\nlabel = "LOW"', 'line 2: tools.read.label = "LOW" must be one of PUBLIC,'),
        ('[workspace.labels]\n"a/**" = "LOW"', 'line 2: workspace.labels."a/**" = "LOW" must be'),
        ('[workspace]\nlabels = "x"', 'line 2: workspace.labels = "x" must be a table'),
        ('[models."x:*"]\nclearance = 1', 'line 2: models."x:*".clearance = 1 must be one of PUB'),
        ('[gateway]\nlevel = "LOW"', 'line 2: gateway.level = "LOW" must be one of PUBLIC, INTER'),
        ("[policy]\napproval_timeout = 0", "line 2: policy.approval_timeout = 0 must be greater"),
        ("[policy]\nrules = 3", "line 2: policy.rules: rules are a list of tables, not 3."),
        ('[agents.main]\nintake = "LOW"', 'line 2: agents.main.intake = "LOW" must be one of PUB'),
        (
            '[agents.main]\nintake = "RESTRICTED"',
            "must not be above the agent's clearance, CONFIDENTIAL",
        ),
    ],
)
def test_a_wrong_place_of_information_is_told_with_its_line(
    tmp_path: Path, toml: str, told: str
) -> None:
    message = refused(tmp_path, toml)
    assert told in message
    assert "TOKEN" not in message


def test_a_variable_of_a_key_that_holds_tables_is_refused(tmp_path: Path) -> None:
    toml = '[workspace.labels]\n"a/**" = "INTERNAL"\n'
    for name in ("WORKSPACE_LABELS", "POLICY_RULES"):
        key = name.lower().replace("_", ".")
        assert (
            f"environment PERDURE_{name}: {key} holds tables, which only the file can set."
            in refused(tmp_path, toml, {f"PERDURE_{name}": "x"})
        )
    told = refused(tmp_path, toml, {"PERDURE_CHANNELS_OPS_URL": "console:"})
    assert "PERDURE_CHANNELS_OPS_URL: no such setting" in told


def test_the_urls_and_secrets_of_channels_are_shown_as_set_and_no_more(tmp_path: Path) -> None:
    toml = f'[channels.ops]\n{HOOK}secret = "sixteen letters!"\n[tools.api_key]\n'
    environ = {"PERDURE_CHANNELS_OPS_URL": "webhook+https://example.org/HIDDEN"}
    entries = {entry.key: entry for entry in effective(load(tmp_path, toml, environ))}
    for key in ("channels.ops.url", "channels.ops.secret"):
        assert (entries[key].value, entries[key].secret) == ("***", True)
    assert entries["channels.ops.url"].source == "environment PERDURE_CHANNELS_OPS_URL"
    assert entries["channels.ops.secret"].source == "perdure.toml:3"
    assert not entries["tools.api_key.label"].secret


def test_rules_are_listed_key_by_key_with_their_lines(tmp_path: Path) -> None:
    entries = {entry.key: entry for entry in effective(load(tmp_path, RULES))}
    when = entries["policy.rules.1.when"]
    assert (when.value, when.source) == (['label gte "CONFIDENTIAL"'], "perdure.toml:14")
    assert entries["policy.rules.0.action"].value == "BLOCK"
    assert "policy.rules.0.message" not in entries
