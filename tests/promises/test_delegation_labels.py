"""What a session knows does not flow down by delegating: not by a task, a file, a result, an
announcement, a list or a steering."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from perdure.domain.labels import Label
from perdure.domain.runs import EndReason, RunState
from perdure.domain.states import EventKind, TurnState
from tests.support import delegating, policed, watching
from tests.support.delegating import ask, call, spawn, subagents
from tests.support.stack import Stack, fresh_key, running_stack

TOOLS = '["files", "subagents", "message", "tests.support.policed_tools:ledger"]'
CONFIG = f"""{policed.CONFIG.replace(policed.ALL_TOOLS, TOOLS)}
[agents.clerk]
tools = {TOOLS}
clearance = "INTERNAL"

[agents.open]
tools = {TOOLS}
intake = "CONFIDENTIAL"

[limits]
children = 20
"""
WITHHOLD = policed.rule(
    *("no-words", "POST_TOOL_RESPONSE", "BLOCK"),
    ("tool", "equals", "sessions_spawn"),
    ("text", "contains", "secret words"),
    message="not these",
)
#: What the tool `ledger`, which is CONFIDENTIAL, tells.
NEEDLE = "ledger-row-1"


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("delegation-labels")
    async with running_stack(home, temporal_address, config=CONFIG + WITHHOLD) as running:
        yield running


async def test_a_confidential_parent_gets_a_confidential_child_or_a_refusal(stack: Stack) -> None:
    """Task text is not laundered through a child that begins PUBLIC."""
    key = fresh_key("tainted")
    out = call("message", channel="public", recipient="anyone", text=NEEDLE)
    await ask(stack, key, "/ledger {}", "---", spawn(out), "---", spawn("/say x", agent="clerk"))

    _, result, refused = await watching.results(stack, key)
    (run,) = await delegating.runs(stack, key)
    assert json.loads(result)["end_reason"] == "completed"
    assert await policed.label(stack, run.session_key) is Label.CONFIDENTIAL
    (sent,) = await watching.results(stack, run.session_key)
    assert "withheld" in sent or "denied" in sent
    assert policed.delivered(stack, "public") == []
    error = policed.refusal(refused)
    assert error["code"] == "denied"
    assert "the clearance of the agent clerk is INTERNAL" in error["message"]


async def test_a_tainted_session_spawns_nothing_where_that_is_set(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = CONFIG + '\n[policy]\nspawn_from_tainted = "block"\n'
    home = tmp_path_factory.mktemp("block")
    async with running_stack(home, temporal_address, config=config) as blocked:
        key = fresh_key("block")
        await ask(blocked, key, spawn("/say clean"), "---", "/ledger {}", "---", spawn("/say x"))
        clean, _, refused = await watching.results(blocked, key)
        assert json.loads(clean)["response"] == "clean"
        assert "policy.spawn_from_tainted is block" in policed.refusal(refused)["message"]
        assert len(await delegating.runs(blocked, key)) == 1


@pytest.mark.parametrize("later", [False, True], ids=["awaited", "later"])
async def test_a_result_above_the_parent_is_withheld_whole(stack: Stack, later: bool) -> None:
    """A constant notice: nothing of it, of its length or of its file."""
    key = fresh_key("withheld")
    asked = spawn("/ledger {}", "---", "/say {{1}}", later=later)
    await ask(stack, key, asked, "/say went on")
    if later:
        await delegating.have(stack, key, RunState.ENDED)
        (run,) = await delegating.all_handed(stack, key)
        await delegating.answered(stack, key, run)
        (notice,) = await delegating.messages(stack, key)
        assert notice.text.startswith("[withheld] The result is above the level")
    else:
        (run,) = await delegating.all_handed(stack, key)
        result = json.loads((await watching.results(stack, key))[0])
        assert result["response"].startswith("[withheld] The result is above the level")
        assert result["full_result_path"] is None
        assert result["condensation"] == {"level": 1, "original_tokens": 0, "tokens": 0}

    assert run.label is Label.CONFIDENTIAL
    assert NEEDLE not in "".join(message.text for message in await watching.transcript(stack, key))
    assert not (watching.workspace(stack, key) / "subagent-results").exists()
    kept = watching.workspace(stack, run.session_key) / "subagent-results" / f"{run.run_id}.txt"
    assert NEEDLE in kept.read_text()
    assert await policed.label(stack, key) is Label.PUBLIC
    again = await ask(stack, key, subagents("list"), "/say {{1.total}}")
    assert again.text == "0"


async def test_a_result_for_a_parent_at_its_level_comes_and_its_file_has_the_level(
    stack: Stack,
) -> None:
    key = fresh_key("same-level")
    await ask(stack, key, "/ledger {}", "---", spawn("/ledger {}", "---", "/say {{1}}"))
    result = json.loads((await watching.results(stack, key))[1])
    assert NEEDLE in result["response"]

    await stack.client.reset(key)
    assert await policed.label(stack, key) is Label.PUBLIC
    await ask(stack, key, call("read", path=result["full_result_path"]))
    assert await policed.label(stack, key) is Label.CONFIDENTIAL


async def test_the_copy_of_a_file_has_its_level(stack: Stack) -> None:
    """Whether by its place or by its history; the child that reads it takes the level."""
    key = fresh_key("files")
    folder = watching.workspace(stack, key) / "finance"
    folder.mkdir(parents=True)
    (folder / "plan").write_text(NEEDLE)
    await ask(stack, key, spawn('/read {"path": "finance/plan"}', artifact_refs=["finance/plan"]))
    (first,) = await delegating.runs(stack, key)
    (artifact,) = first.packet.artifacts
    assert artifact.label is Label.CONFIDENTIAL
    assert await policed.label(stack, first.session_key) is Label.CONFIDENTIAL
    assert first.label is Label.CONFIDENTIAL

    await ask(stack, key, "/ledger {}", "---", '/write {"path": "note", "content": "x"}')
    await stack.client.reset(key)
    await ask(stack, key, spawn('/read {"path": "note"}', artifact_refs=["note"]))
    second = (await delegating.runs(stack, key))[-1]
    assert await policed.label(stack, second.session_key) is Label.CONFIDENTIAL
    assert "[withheld]" in (await watching.results(stack, key))[-1]


async def test_an_announcement_goes_where_its_level_may(stack: Stack) -> None:
    key = fresh_key("announced")
    for channel, recipient in (("board", "chair"), ("staff", "team"), ("public", "anyone")):
        where = {"announce_channel_type": channel, "announce_channel_id": recipient}
        await ask(stack, key, spawn("/ledger {}", "---", "/say {{1}}", **where))
    await delegating.all_handed(stack, key, 3)
    assert [NEEDLE in text for text in policed.delivered(stack, "board")] == [True]
    assert policed.delivered(stack, "staff") == policed.delivered(stack, "public") == []
    refused = [
        entry
        for run in await delegating.runs(stack, key)
        for entry in await policed.audit(stack, run.session_key, "PRE_OUTPUT")
        if entry.decision == "BLOCK"
    ]
    assert len(refused) == 2


async def test_steering_does_not_flow_down(stack: Stack) -> None:
    """A run that is below its parent by now is not told, unless its agent takes it in."""
    key = fresh_key("down")
    for agent in ("main", "open"):
        await ask(stack, key, spawn("/sleep 600", agent=agent, later=True))
    closed, taking = await delegating.runs(stack, key)
    await delegating.working(stack, key, 2)
    await ask(stack, key, "/ledger {}")
    for run in (closed, taking):
        await ask(stack, key, subagents("steer", target=run.run_id, message=f"/say {NEEDLE}"))
    refused, steered = (await watching.results(stack, key))[-2:]
    assert policed.refusal(refused)["code"] == "denied"
    assert "write-down" in policed.refusal(refused)["message"]
    (new,) = [run for run in await delegating.have(stack, key, RunState.ENDED, 2) if run.follows]
    assert json.loads(steered)["new_run_id"] == new.run_id
    assert await policed.label(stack, new.session_key) is Label.CONFIDENTIAL
    await ask(stack, key, subagents("kill", target=closed.run_id))


async def test_what_a_run_was_told_has_a_level_before_it_begins(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """In the queue its session is PUBLIC still, and its task is not: whoever may not read it does
    not see the run."""
    home = tmp_path_factory.mktemp("queue")
    config = CONFIG.replace("children = 20", 'children = 1\n[gateway]\nlevel = "INTERNAL"')
    async with running_stack(home, temporal_address, config=config) as one:
        key = fresh_key("queue")
        await ask(one, key, spawn("/sleep 600", later=True), "---", "/ledger {}")
        await ask(one, key, spawn(f"/say {NEEDLE}", later=True))
        first, waiting = await delegating.runs(one, key)
        assert (waiting.state, waiting.label) == (RunState.QUEUED, Label.CONFIDENTIAL)
        assert await policed.label(one, waiting.session_key) is Label.PUBLIC
        assert [run.run_id for run in (await one.client.runs.list(key)).runs] == [first.run_id]
        # What it comes to without having begun is not told below its level either.
        await one.client.reset(key)
        await one.client.store.stopping.stop(waiting.run_id, EndReason.KILLED)
        await one.client.runs.kill(first.run_id)
        await delegating.all_handed(one, key, 2)
        kept = await delegating.kept(one, key)
        assert sorted(kept) == sorted([(first.run_id, "reset"), (waiting.run_id, "reset")])


async def test_a_rule_that_withholds_the_result_of_a_call_is_not_gone_round(stack: Stack) -> None:
    """What the model may not read as the result of its call does not come as a message."""
    key = fresh_key("rule")
    asked = await ask(stack, key, spawn("/say secret words"), "/say {{1.error.message}}")
    assert asked.state is TurnState.COMPLETED
    assert "secret words" not in asked.text
    await delegating.all_handed(stack, key)
    assert await watching.events(stack, key, EventKind.RUN_KEPT) == []
    assert await delegating.messages(stack, key) == []
