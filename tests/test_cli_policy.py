"""`perdure policy`: rules tried on samples, decisions explained, hooks listed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli import run
from perdure.audit import AuditEntry, AuditFiles
from perdure.domain.labels import Label
from perdure.guard import Guard
from perdure.policy.engine import decide
from perdure.policy.facts import Facts
from perdure.policy.hooks import Hook
from perdure.policy.rules import Rules
from perdure.store import Database
from perdure.store.audit import AuditTrail
from tests.support.settings import load
from tests.support.stack import ROOT

RULES = """\
[[policy.rules]]
id = "ask-delete"
hook = "PRE_TOOL_CALL"
priority = 10
when = [{ field = "args.ids.1", op = "gt", value = 0 }]
action = "REQUIRE_APPROVAL"
message = "Two at once need a person."

"""
SAMPLES = """\
[[samples]]
name = "two deletes"
hook = "PRE_TOOL_CALL"
tool = "delete"
args = { ids = [1, 2] }
expect = "REQUIRE_APPROVAL"
decided_by = "rule:ask-delete"

[[samples]]
name = "one delete"
hook = "PRE_TOOL_CALL"
tool = "delete"
args = { ids = [1] }
expect = "ALLOW"

[[samples]]
name = "finance to everybody"
hook = "PRE_OUTPUT"
label = "CONFIDENTIAL"
text = "the figures"
expect = "BLOCK"
decided_by = "invariant:label-flow"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "rules.toml"
    path.write_text(RULES + SAMPLES)
    return path


def test_samples_that_come_out_as_expected_exit_0(file: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "gateway.cli", "policy", "test", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    rows = [line.split() for line in ran.stdout.splitlines()]
    assert rows[1] == ["✓", "two", "deletes", "PRE_TOOL_CALL", *2 * ["REQUIRE_APPROVAL"],
                       "rule:ask-delete"]  # fmt: skip
    assert rows[-1] == ["3", "samples,", "0", "decided", "otherwise"]


def test_a_sample_that_comes_out_otherwise_exits_1_and_is_explained(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(file.read_text().replace('expect = "ALLOW"', 'expect = "BLOCK"'))
    assert run(["policy", "test", str(file)]) == 1
    told = capsys.readouterr().out
    assert "✗ one delete: No rule and no invariant forbids it." in told
    assert "ask-delete  field missing  args.ids.1" in told
    assert run(["policy", "test", str(file), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is False
    assert [one["ok"] for one in document["samples"]] == [True, False, True]
    assert document["samples"][1]["action"] == "ALLOW"
    assert document["samples"][1]["rules_evaluated"][0]["outcome"] == "field missing"


def test_the_one_who_decides_counts_when_it_is_named(file: Path) -> None:
    file.write_text(file.read_text().replace("invariant:label-flow", "invariant:clearance"))
    assert run(["policy", "test", str(file)]) == 1


def test_samples_alone_try_the_rules_in_force(tmp_path: Path, file: Path) -> None:
    file.write_text(SAMPLES)
    assert run(["policy", "test", str(file), "--home", str(tmp_path)]) == 1
    (tmp_path / "perdure.toml").write_text(RULES)
    assert run(["policy", "test", str(file), "--home", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ('"gt"', '"greater"', "line 5: policy.rules.0.when.0.op: rule 'ask-delete': unknown op"),
        ('hook = "PRE_OUTPUT"', 'hook = "PRE_OUT"', "line 26: samples.2.hook: unknown hook "
         "'PRE_OUT'. Did you mean PRE_OUTPUT? It is one of"),
        ('expect = "ALLOW"', 'expect = "allow"', "line 22: samples.1.expect: unknown expect"),
        ('expect = "ALLOW"', "", "line 17: samples.1: the key expect is missing."),
        ('"CONFIDENTIAL"', '"Confidental"', "line 27: samples.2.label: label = 'Confidental' must"),
        ('text = "the', 'tool = "the', "line 28: samples.2.tool: PRE_OUTPUT has no field 'tool'."),
        ("args = { ids = [1] }", "args = 1", "line 21: samples.1.args: args = 1 must be a valid"),
        ('tool = "delete"\n', 'session_key = "x"\ntool = "delete"\n', "samples.0.session_key: "),
        ("[[samples]]", "[[sampels]]", "line 9: sampels: it is no key of such a file"),
        (SAMPLES, "", "has no [[samples]]"),
        (RULES + SAMPLES, "samples = 3", "samples: samples are a list of tables, not 3."),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_told_with_its_line(
    file: Path, capsys: pytest.CaptureFixture[str], right: str, wrong: str, told: str
) -> None:
    file.write_text(file.read_text().replace(right, wrong))
    assert run(["policy", "test", str(file)]) == 2
    assert told in capsys.readouterr().err


async def recorded(home: Path, *entries: AuditEntry) -> None:
    database = await Database.open(f"sqlite:///{home / 'perdure.db'}")
    trail = await AuditTrail.open(database, AuditFiles.of(home))
    for entry in entries:
        await database.write(trail.append, entry)
    await database.close()


def test_a_past_decision_is_explained_with_every_rule_and_the_labels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = load(tmp_path, RULES)
    guard = Guard(settings)
    facts = Facts(
        hook=Hook.PRE_TOOL_CALL,
        session_key="default:me",
        agent="main",
        label=Label.PUBLIC,
        clearance=Label.CONFIDENTIAL,
        tool="delete",
        arguments={"ids": [1]},
        result_label=Label.INTERNAL,
    )
    rules = Rules(rules=settings.policy.rules)
    allowed = decide(facts, rules)
    blocked = decide(facts.model_copy(update={"destination": Label.PUBLIC,
                                              "label": Label.INTERNAL}), rules)  # fmt: skip
    asyncio.run(
        recorded(
            tmp_path,
            guard.recorded(allowed, "default:me", turn=3, step=1, arguments={"ids": [1]}),
            guard.recorded(blocked, "default:me"),
        )
    )
    assert run(["policy", "explain", "1", "--home", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    for part in (
        "ALLOW by default",
        "PRE_TOOL_CALL in default:me, turn 3, step 1",
        "PUBLIC → INTERNAL",
        "ids=[1]",
        "ask-delete  field missing  args.ids.1",
    ):
        assert part in told
    assert run(["policy", "explain", "2", "--home", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "BLOCK by invariant:label-flow" in told
    assert "no rule and no approval changes it" in told
    assert run(["policy", "explain", "2", "--json", "--home", str(tmp_path)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["seq"], document["decision"]) == (2, "BLOCK")
    assert document["rules_evaluated"][0]["id"] == "ask-delete"
    assert run(["policy", "explain", "9", "--home", str(tmp_path)]) == 3


def test_every_hook_is_listed_with_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["policy", "hooks"]) == 0
    told = capsys.readouterr().out
    assert all(hook in told for hook in Hook)
    assert run(["policy", "hooks", "--json"]) == 0
    hooks = {one["hook"]: one for one in json.loads(capsys.readouterr().out)["hooks"]}
    assert set(hooks) == set(Hook)
    assert hooks["PRE_OUTPUT"]["redacts"] == "text"
    assert "args." in hooks["PRE_TOOL_CALL"]["fields"]
