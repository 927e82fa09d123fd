"""Rules at every hook, through whole sessions: what they block, redact and leave alone.

Each test goes through `SessionClient`, a real Temporal server and a real worker.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import text

from perdure.domain.errors import Denied
from perdure.domain.labels import Label
from perdure.domain.messages import Role
from perdure.domain.states import TurnState
from perdure.guard import WITHHELD
from tests.support.openai_server import OpenAIServer, calls, says
from tests.support.policed import (
    ALL_TOOLS,
    CONFIG,
    ask,
    audit,
    call,
    delivered,
    events,
    label,
    refusal,
    results,
    rule,
    workspace,
)
from tests.support.stack import Stack, fresh_key, running_stack

TELLS = ("tool", "equals", "tell")
RULES = "".join(
    [
        # Priorities, on the same condition.
        rule("block-100", "PRE_TOOL_CALL", "BLOCK", ("args.text", "equals", "both"), priority=100),
        rule("allow-50", "PRE_TOOL_CALL", "ALLOW", ("args.text", "equals", "both"), priority=50),
        rule("allow-all", "PRE_OUTPUT", "ALLOW", priority=2000),
        rule(
            "allow-everything", "PRE_TOOL_CALL", "ALLOW", ("agent", "equals", "free"), priority=2000
        ),
        # Redaction.
        rule("mask-in", "PRE_TOOL_CALL", "REDACT", TELLS, pattern="falcon"),
        rule("mask-out", "POST_TOOL_RESPONSE", "REDACT", TELLS, pattern="heron"),
        rule(
            "mask-leftover",
            "POST_TOOL_RESPONSE",
            "REDACT",
            ("tool", "equals", "bogus"),
            pattern=r"owl|x\[RED",
        ),
        rule(
            "hide-results",
            "POST_TOOL_RESPONSE",
            "BLOCK",
            ("text", "contains", "hide me"),
            priority=50,
        ),
        rule(
            "mask-message", "PRE_TOOL_CALL", "REDACT", ("tool", "equals", "message"), pattern="kite"
        ),
        rule(
            "mask-answer",
            "PRE_OUTPUT",
            "REDACT",
            ("channel", "equals", "board"),
            priority=3000,
            pattern="wren",
        ),
        rule(
            "mask-context",
            "PRE_CONTEXT_INJECTION",
            "REDACT",
            ("text", "contains", "crane"),
            pattern="crane",
        ),
        rule(
            "keep-out",
            "PRE_CONTEXT_INJECTION",
            "BLOCK",
            ("text", "contains", "keep out"),
            priority=50,
        ),
        # Whole acts.
        rule(
            "no-spare",
            "AGENT_INVOCATION",
            "BLOCK",
            ("target", "equals", "spare"),
            message="Not today.",
        ),
        rule(
            "no-night",
            "AGENT_INVOCATION",
            "BLOCK",
            ("label", "gte", "INTERNAL"),
            ("agent", "equals", "day"),
        ),
        rule(
            "no-reset", "SESSION_RESET", "BLOCK", ("agent", "equals", "free"), message="It stays."
        ),
        rule("no-hook-key", "SECRET_ACCESS", "BLOCK", ("secret", "equals", "channels.staff")),
    ]
)
AGENTS = f"""
[agents.free]
tools = {ALL_TOOLS}

[agents.spare]
tools = []

[agents.day]
tools = []

[agents.talker]
model = "openai-chat:fake"
instructions = "Be brief."
tools = {ALL_TOOLS}
"""


@pytest.fixture(scope="module")
async def provider() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        yield server


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, provider: OpenAIServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("policy")
    environ = {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test-key"}
    async with running_stack(
        home, temporal_address, config=CONFIG + AGENTS + RULES, environ=environ
    ) as running:
        yield running


async def test_the_higher_priority_decides_and_both_are_recorded(stack: Stack) -> None:
    """Handed case: BLOCK at 100 beats ALLOW at 50."""
    key = fresh_key("priority")
    await ask(stack, key, call("tell", text="both"))
    told = refusal((await results(stack, key))[0])
    assert told["code"] == "denied"
    assert "block-100" in told["message"]
    (entry,) = await audit(stack, key, "PRE_TOOL_CALL")
    assert (entry.decision, entry.decided_by) == ("BLOCK", "rule:block-100")
    outcomes = {one["id"]: one["outcome"] for one in json.loads(entry.rules_evaluated)}
    assert outcomes["block-100"] == outcomes["allow-50"] == "matched"
    assert outcomes["mask-message"] == "not matched"


async def test_no_rule_undoes_an_invariant(stack: Stack) -> None:
    """Handed case: ALLOW at 2000 lets nothing flow down, at either hook."""
    key = fresh_key("free")
    sends = call("message", channel="public", recipient="anyone", text="free-needle")
    result = await ask(stack, key, call("ledger"), "---", sends, agent="free")
    assert result.label is Label.CONFIDENTIAL
    assert refusal((await results(stack, key))[1])["code"] == "denied"
    assert delivered(stack, "public") == []
    key = f"{fresh_key('free')}~peer~anyone~channel~public"
    assert (await ask(stack, key, "/say x", label=Label.INTERNAL, agent="free")).text == WITHHELD
    secret = call("write", path="a.txt", content="sk-ant-api03-Zk3Vq8LmP0xTn7RcW2yB")
    await ask(stack, key, secret)
    assert "anthropic-key" in (await results(stack, key))[0]


async def test_arguments_are_redacted_before_the_tool_runs(stack: Stack) -> None:
    key = fresh_key("arguments")
    await ask(stack, key, call("tell", text="the falcon flies"))
    (result,) = await results(stack, key)
    assert "falcon" not in result
    assert "flies" in result
    (entry,) = await audit(stack, key, "PRE_TOOL_CALL")
    assert (entry.decision, entry.decided_by) == ("REDACT", "rule:mask-in")


async def test_a_result_is_redacted_before_the_model_reads_it(stack: Stack) -> None:
    key = fresh_key("result")
    await ask(stack, key, call("tell", text="the heron flies"), call("tell", text="hide me well"))
    masked, hidden = await results(stack, key)
    assert "heron" not in masked
    assert "flies" in masked
    assert refusal(hidden)["code"] == "denied"
    assert "hide me" not in hidden


async def test_what_is_redacted_is_checked_again(stack: Stack) -> None:
    """What stands before the mark makes it match again, so nothing may go on."""
    key = fresh_key("again")
    await ask(stack, key, call("bogus", label="xowl"))
    told = refusal((await results(stack, key))[0])
    assert "could not redact all of it" in told["message"]


async def test_what_one_hook_redacts_no_other_brings_back(stack: Stack) -> None:
    """PRE_TOOL_CALL masks one word of a message, PRE_OUTPUT another."""
    key = fresh_key("hooks")
    sends = call("message", channel="board", recipient="chair", text="a kite and a wren")
    await ask(stack, key, sends)
    (sent,) = delivered(stack, "board")
    assert sent.startswith("a [REDACTED")
    assert "kite" not in sent
    assert "wren" not in sent
    answer = await ask(stack, f"{key}~peer~chair~channel~board", "/say no wren here")
    assert "wren" not in answer.text
    assert "here" in answer.text


async def test_the_context_is_redacted(stack: Stack, provider: OpenAIServer) -> None:
    """What the model reads, not what the transcript keeps."""
    key = fresh_key("context")
    provider.script(
        calls(("1", "tell", '{"text": "a crane again"}')), says("done"), says("and again")
    )
    await ask(stack, key, "a crane", agent="talker")
    await ask(stack, key, "please keep out of it", agent="talker")
    shown = json.dumps([request.body["messages"] for request in provider.requests])
    assert "REDACTED" in shown
    assert "a crane" not in shown.replace("a crane again", "")
    assert "please keep out of it" not in shown
    assert "[withheld]" in shown
    texts = [
        one.text for one in (await stack.client.history(key)).messages if one.role == Role.USER
    ]
    assert texts == ["a crane", "please keep out of it"]


async def test_what_a_model_said_in_a_call_is_redacted_too(
    stack: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("said")
    provider.requests.clear()
    provider.script(calls(("1", "tell", '{"text": "a crane again"}')), says("done"))
    await ask(stack, key, "go", agent="talker")
    assert "crane" not in json.dumps(provider.requests[-1].body["messages"])


async def test_a_blocked_agent_says_so_and_its_session_goes_on(stack: Stack) -> None:
    key = fresh_key("spare")
    for _ in range(2):
        result = await ask(stack, key, "/say hi", agent="spare")
        assert result.state is TurnState.FAILED
        assert "Not today." in result.text
        assert result.error is not None
        assert result.error["code"] == "denied"
        assert "rule:no-spare" in result.error["hint"]
    key = fresh_key("day")
    assert (await ask(stack, key, "/say one", agent="day")).text == "one"
    assert (await ask(stack, key, "/say no", label=Label.INTERNAL)).state is TurnState.FAILED
    await stack.client.reset(key)
    assert (await ask(stack, key, "/say two")).text == "two"


async def test_a_blocked_reset_changes_nothing(stack: Stack) -> None:
    key = fresh_key("reset")
    await ask(stack, key, call("ledger"), agent="free")
    with pytest.raises(Denied, match="It stays"):
        await stack.client.reset(key)
    assert await label(stack, key) is Label.CONFIDENTIAL
    (entry,) = await audit(stack, key, "SESSION_RESET")
    assert (entry.decision, entry.decided_by) == ("BLOCK", "rule:no-reset")
    assert (entry.label_before, entry.label_after) == ("CONFIDENTIAL", "CONFIDENTIAL")
    key = fresh_key("reset-main")
    await ask(stack, key, call("ledger"))
    await stack.client.reset(key)
    (entry,) = await audit(stack, key, "SESSION_RESET")
    assert (entry.decision, entry.label_after) == ("ALLOW", "PUBLIC")
    assert await label(stack, key) is Label.PUBLIC


async def test_a_credential_is_not_used_where_a_rule_forbids_it(stack: Stack) -> None:
    key = fresh_key("credential")
    await ask(stack, key, call("message", channel="staff", recipient="team", text="hi"))
    assert "no-hook-key" in refusal((await results(stack, key))[0])["message"]
    assert delivered(stack, "staff") == []


SIMULATED = [
    {"tool_name": "tell", "args": {"text": "both"}},
    {"tool_name": "tell", "args": {"text": "falcon"}},
    {"tool_name": "ledger"},
    {"tool_name": "vault"},
    {"tool_name": "read", "args": {"path": "finance/q3.md"}},
    {"tool_name": "message", "args": {"channel": "public", "recipient": "x", "text": "y"}},
]
DECISIONS = ["BLOCK", "REDACT", "ALLOW", "BLOCK", "ALLOW", "REDACT"]


async def test_simulating_answers_the_same_and_leaves_no_trace(stack: Stack) -> None:
    """Handed case: three times, the same answer; no label, no audit entry of the call, no file."""
    key = fresh_key("simulate")
    workspace(stack, key).write("finance/q3.md", "profit")
    lines = [call("simulate_tool_call", **each) for each in SIMULATED]
    await ask(stack, key, *lines, "---", *lines, "---", *lines)
    told = await results(stack, key)
    assert told[:6] == told[6:12] == told[12:]
    answers = [json.loads(one) for one in told[:6]]
    assert [one["decision"] for one in answers] == DECISIONS
    assert answers[0]["decided_by"] == "rule:block-100"
    assert answers[2]["label_after"] == "CONFIDENTIAL"
    assert (answers[3]["decided_by"], answers[3]["label_after"]) == (
        "invariant:clearance",
        "PUBLIC",
    )
    assert await label(stack, key) is Label.PUBLIC
    assert not [event for event in await events(stack, key) if "label" in event.kind]
    tools = {event.payload["tool"] for event in await events(stack, key) if "tool." in event.kind}
    assert tools == {"simulate_tool_call"}
    for entry in await audit(stack, key, "PRE_TOOL_CALL"):
        assert json.loads(entry.arguments).keys() <= {"tool_name", "args"}
    assert not (workspace(stack, key).root / "tool-results").exists()
    assert await count(stack, "approvals", key) == await count(stack, "deliveries", key) == 0


async def count(stack: Stack, table: str, key: str) -> Any:
    query = text(f"select count(*) from {table} where session_key = :key")
    return await stack.client.store.database.read(
        lambda connection: connection.scalar(query, {"key": key})
    )
