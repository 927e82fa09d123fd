"""The audit trail of whole sessions: every hook that ran, before its effect, and no secret.

Each test goes through `SessionClient`, a real Temporal server and a real worker.
"""

from __future__ import annotations

import json
from pathlib import Path

from perdure.domain.labels import Label
from perdure.policy.hooks import Hook
from perdure.store.audit import verify
from tests.support.policed import CONFIG, ask, audit, call, pending, results, rule, workspace
from tests.support.stack import Stack, fresh_key, running_stack, until

KEY = "sk-ant-api03-Zk3Vq8LmP0xTn7RcW2yB"
RULES = (
    rule("ask-delete", "PRE_TOOL_CALL", "REQUIRE_APPROVAL", ("tool", "equals", "delete"))
    + rule("mask", "POST_TOOL_RESPONSE", "REDACT", ("tool", "equals", "tell"), pattern="falcon")
    + rule("no-spare", "AGENT_INVOCATION", "BLOCK", ("target", "equals", "spare"))
)
AGENTS = """
[agents.spare]
tools = []

[agents.talker]
model = "openai-chat:nowhere"
tools = []

[limits]
step_attempts = 1
"""
NOWHERE = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "test-key"}


async def busy(stack: Stack, key: str) -> None:
    """A session in which every hook that there is by now decides something."""
    workspace(stack, key).write("finance/q3.md", "profit")
    await ask(stack, key, call("tell", text="falcon"), call("write", path="a.txt", content=KEY))
    await ask(stack, key, call("message", channel="staff", recipient="team", text="hi"))
    ticket = await stack.client.send(key, f"{call('delete', ids=[1])}\n{call('delete', ids=[2])}")
    one, two = await pending(stack, key, 2)
    changed = json.dumps({"ids": [3]})
    await stack.client.decide(one.id, approve=True, by="ada", reason=KEY, arguments=changed)
    await stack.client.decide(two.id, approve=False, by="ada", reason="no")
    await stack.client.wait(key, ticket.message_id, timeout=60)
    await ask(
        stack,
        key,
        call("read", path="finance/q3.md"),
        "---",
        call("message", channel="public", recipient="anyone", text="profit"),
        call("vault"),
        f"/say {KEY}",
    )
    await stack.client.reset(key)
    await ask(stack, fresh_key("spare"), "hi", agent="spare")
    await ask(stack, fresh_key("talker"), "hi", agent="talker")


async def test_after_a_busy_day_the_chain_is_valid_and_complete(
    temporal_address: str, tmp_path: Path
) -> None:
    config = CONFIG + AGENTS + RULES
    async with running_stack(tmp_path, temporal_address, config=config, environ=NOWHERE) as stack:
        key = fresh_key("busy")
        await busy(stack, key)

        report = await verify(stack.client.store.database, stack.settings.audit_files)
        assert report.valid, report
        entries = await audit(stack, None)
        assert report.entries == len(entries)
        hooks = {entry.hook for entry in entries}
        assert hooks == {*Hook, "APPROVAL"} - {Hook.MCP_TOOL_CALL}
        decided = {(entry.hook, entry.decision, entry.decided_by) for entry in entries}
        assert {
            ("PRE_TOOL_CALL", "REQUIRE_APPROVAL", "rule:ask-delete"),
            ("PRE_TOOL_CALL", "BLOCK", "invariant:secret-in-arguments"),
            ("PRE_TOOL_CALL", "BLOCK", "invariant:clearance"),
            ("PRE_OUTPUT", "REDACT", "invariant:secret-in-output"),
            ("PRE_TOOL_CALL", "BLOCK", "invariant:label-flow"),
            ("PRE_OUTPUT", "BLOCK", "invariant:label-flow"),
            ("POST_TOOL_RESPONSE", "REDACT", "rule:mask"),
            ("AGENT_INVOCATION", "BLOCK", "rule:no-spare"),
            ("SECRET_ACCESS", "ALLOW", "default"),
            ("SESSION_RESET", "ALLOW", "default"),
            ("APPROVAL", "approved", "person:ada"),
            ("APPROVAL", "denied", "person:ada"),
        } <= decided
        raised = [one for one in entries if one.label_before != one.label_after]
        assert {(one.hook, one.label_before, one.label_after) for one in raised} == {
            ("PRE_TOOL_CALL", Label.PUBLIC, Label.CONFIDENTIAL),
            ("POST_TOOL_RESPONSE", Label.PUBLIC, Label.CONFIDENTIAL),
            ("SESSION_RESET", Label.CONFIDENTIAL, Label.PUBLIC),
        }
        evaluated = [
            json.loads(one.rules_evaluated) for one in entries if one.hook == "PRE_TOOL_CALL"
        ]
        assert all([rule["id"] for rule in rules] == ["ask-delete"] for rules in evaluated)
        everything = json.dumps([entry.columns() for entry in entries])
        assert KEY not in everything
        assert "sk-ant" not in everything
        assert "REDACTED" in everything


async def test_an_entry_is_written_before_the_effect(temporal_address: str, tmp_path: Path) -> None:
    """Killed in the middle of a tool, the decision is there and the outcome is not; afterwards
    the effect is reported once, as unknown."""
    async with running_stack(tmp_path, temporal_address, config=CONFIG) as stack:
        key = fresh_key("before")
        slow = call("scribble", name="n.md", text="needle", seconds=600)
        ticket = await stack.client.send(key, slow)
        place = workspace(stack, key).root / "n.md"

        async def written() -> bool:
            return place.exists()

        await until(written)
        stack.worker.kill()
        before = await audit(stack, key, "PRE_TOOL_CALL", "POST_TOOL_RESPONSE")
        assert [(one.hook, one.decision) for one in before] == [("PRE_TOOL_CALL", "ALLOW")]
        assert json.loads(before[0].arguments)["name"] == "n.md"
        place.unlink()
        stack.worker.start()
        await stack.client.wait(key, ticket.message_id, timeout=60)

        (told,) = await results(stack, key)
        assert "Unknown outcome" in told
        assert not place.exists()
        assert (await verify(stack.client.store.database, stack.settings.audit_files)).valid
