"""What a session hands to another, and what comes back: at once, later, in order, in depth."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from activities.post import workflow_id
from perdure.domain import visibility
from perdure.domain.states import EventKind, TurnState
from tests.support import delegating, watching
from tests.support.delegating import TIMEOUT, ask, spawn, subagents
from tests.support.stack import Stack, fresh_key, running_stack, until

CONFIG = """
[agents.main]
tools = ["files", "sessions", "subagents", "tests.support.user_tools:late"]

[agents.lean]
tools = ["subagents"]

[agents.rich]
tools = ["files", "subagents", "message"]

[limits]
run_steps = 40
children = 20
"""


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("delegation")
    async with running_stack(home, temporal_address, config=CONFIG) as running:
        yield running


async def test_a_call_that_waits_gets_the_result_of_its_run(stack: Stack) -> None:
    key = fresh_key("waits")
    asked = await ask(stack, key, spawn("/ls {}", "/say found it"), "/say it said {{1.response}}")

    assert (asked.state, asked.text) == (TurnState.COMPLETED, "it said found it")
    (result,) = await delegating.results(stack, key)
    (run,) = await delegating.runs(stack, key)
    assert result.keys() == {
        *("run_id", "session_key", "status", "end_reason", "response", "condensation"),
        *("outputs", "stats", "full_result_path"),
    }
    assert (result["run_id"], result["session_key"]) == (run.run_id, run.session_key)
    assert run.session_key == f"{key}~agent~main~run~{run.run_id}"
    assert (result["status"], result["end_reason"]) == ("completed", "completed")
    assert result["condensation"]["level"] == 1
    assert result["stats"]["steps"] == 2
    child = await watching.transcript(stack, run.session_key)
    assert [message.role for message in child] == ["user", "assistant", "tool", "assistant"]
    # It is the call's result, and nothing else comes of it.
    await delegating.all_handed(stack, key)
    assert await delegating.messages(stack, key) == []


async def test_a_run_can_be_told_apart_in_temporal(stack: Stack) -> None:
    key = fresh_key("shown")
    await ask(stack, key, spawn("/say done"))
    (run,) = await delegating.runs(stack, key)

    handle = stack.client.temporal.get_workflow_handle(workflow_id(run.session_key))
    described = await handle.describe()
    shown = {pair.key.name: pair.value for pair in described.typed_search_attributes}
    assert await described.static_summary() == f"main · {run.run_id} · for {key}"
    assert shown[visibility.PARENT] == key
    assert (described.parent_id, described.workflow_type) == (workflow_id(key), "SubAgent")


async def test_a_result_that_nobody_waits_for_begins_a_turn(stack: Stack) -> None:
    key = fresh_key("later")
    asked = await ask(
        stack, key, spawn("/say the child's words", later=True), "/say ordered {{1.run_id}}"
    )
    (run,) = await delegating.all_handed(stack, key)
    assert asked.text == f"ordered {run.run_id}"
    (ordered,) = await delegating.results(stack, key)
    assert ordered == {"run_id": run.run_id, "session_key": run.session_key, "async": True}

    result = await stack.client.wait(key, f"result_{run.run_id}", timeout=TIMEOUT)
    assert (result.turn, result.state) == (2, TurnState.COMPLETED)
    (handed,) = await delegating.messages(stack, key)
    assert handed.from_session == run.session_key
    assert handed.text.startswith("[Subagent Result: main]\nstatus: completed\n")
    assert "\nthe child's words\n" in handed.text


async def test_results_that_come_during_a_tool_call_stand_before_the_next_step_in_order(
    stack: Stack,
) -> None:
    key = fresh_key("order")
    ticket = await stack.client.send(
        key,
        "\n".join(
            [
                spawn("/sleep 1", "/say slow", later=True),
                spawn("/say fast", later=True),
                "---",
                "/late {}",
                "---",
                "/say done",
            ]
        ),
    )
    ended = await delegating.all_handed(stack, key, 2)
    (watching.workspace(stack, key) / "gate").touch()
    await stack.client.wait(key, ticket.message_id, timeout=TIMEOUT)

    slow, fast = sorted(ended, key=lambda run: "fast" in run.packet.task)
    said = await watching.transcript(stack, key)
    assert [message.role for message in said] == [
        *("user", "assistant", "tool", "tool", "assistant", "tool"),
        *("user", "user", "assistant"),
    ]
    assert [message.id for message in said[6:8]] == [
        f"result_{fast.run_id}",
        f"result_{slow.run_id}",
    ]
    joined = await watching.events(stack, key, EventKind.MESSAGE_JOINED)
    assert [(event.turn, event.step) for event in joined] == [(1, 3), (1, 3)]
    await until(lambda: watching.at_rest(stack, key))
    assert (await stack.client.status(key)).turns == 1


async def test_a_run_is_not_over_before_what_it_has_spawned(stack: Stack) -> None:
    """A child that orders work and says so has not answered yet: what it says last, with all of it
    in view, is its result."""
    key = fresh_key("depth")
    inner = spawn("/sleep 0.5", "/say from the depth", later=True)
    await ask(stack, key, spawn(inner, "/say ordered"), "/say {{1.response}}")

    (result,) = await delegating.results(stack, key)
    assert (result["status"], result["end_reason"]) == ("completed", "completed")
    assert "from the depth" in result["response"]
    (child,) = await delegating.runs(stack, key)
    (grandchild,) = await delegating.runs(stack, child.session_key)
    assert (child.depth, grandchild.depth) == (1, 2)
    ended = [run.ended_at for run in (grandchild, child) if run.ended_at]
    assert len(ended) == 2
    assert ended == sorted(ended)
    assert (await stack.client.status(child.session_key)).turns == 2


async def test_the_steps_of_a_run_are_at_least_thirty_and_at_most_the_limit(stack: Stack) -> None:
    key = fresh_key("steps")
    await ask(stack, key, *(spawn("/say ok", max_steps=n) for n in (10, 35, 500)))
    listed = await stack.client.runs.list(key)
    assert sorted(run.max_steps for run in listed.runs) == [30, 35, 40]


async def test_a_child_is_offered_no_tool_that_its_grandparent_lacks(stack: Stack) -> None:
    """The agent has it, and the group was asked for: at no depth does that give a run more."""
    key = fresh_key("tools")
    message = delegating.call("message", channel="any", recipient="me", text="out")
    deep = spawn(message, '/write {"path": "a", "content": "b"}', agent="rich", tool_groups=[])
    asked = spawn(deep, agent="rich")
    await ask(stack, key, asked, agent="lean")

    (child,) = await delegating.runs(stack, key)
    (grandchild,) = await delegating.runs(stack, child.session_key)
    for run in (child, grandchild):
        assert set(run.packet.tools) == {"sessions_spawn", "subagents"}
    errors = [result["error"] for result in await delegating.results(stack, grandchild.session_key)]
    assert [error["code"] for error in errors] == ["invalid_argument"] * 2
    assert "There is no tool named 'message'" in errors[0]["message"]

    refused = spawn("/say x", agent="rich", tool_groups=["no such group"])
    await ask(stack, key, refused)
    assert (await delegating.results(stack, key))[-1]["error"]["code"] == "invalid_argument"
    assert len(await delegating.runs(stack, key)) == 1


async def test_the_files_are_copied_and_what_is_no_file_is_refused_before_anything_is_spawned(
    stack: Stack,
) -> None:
    key = fresh_key("files")
    await ask(stack, key, '/write {"path": "plans/a.md", "content": "the plan"}')
    home = watching.workspace(stack, key)
    (home / "out").symlink_to("/etc/passwd")
    bad = ["../../etc/passwd", "out", "plans", "missing.md"]
    await ask(stack, key, spawn("/say x", artifact_refs=["plans/a.md", *bad]))

    (error,) = [r["error"] for r in await delegating.results(stack, key) if "error" in r]
    assert error["code"] == "invalid_argument"
    assert all(name in error["message"] for name in bad)
    assert await delegating.runs(stack, key) == []
    assert [
        one.session_key
        for one in (await stack.client.sessions(limit=100)).sessions
        if one.session_key.startswith(f"{key}~")
    ] == []

    read = ('/read {"path": "plans/a.md"}', "/say {{1}}")
    await ask(stack, key, spawn(*read, artifact_refs=["plans/a.md"]))
    assert "the plan" in (await delegating.results(stack, key))[-1]["response"]


async def test_a_finished_run_answers_one_more_question_with_its_transcript_in_view(
    stack: Stack,
) -> None:
    """Under the same tools, and with its workspace; its result is not handed over once more."""
    key = fresh_key("researcher")
    noted = '/write {"path": "note", "content": "41"}'
    await ask(stack, key, spawn(noted, "/say noted", tool_groups=["files"]))
    (run,) = await delegating.runs(stack, key)
    again = await ask(
        stack, run.session_key, '/read {"path": "note"}', spawn("/say x"), "/say {{1}}"
    )

    assert (again.state, again.turn) == (TurnState.COMPLETED, 2)
    assert "41" in again.text
    assert "There is no tool named 'sessions_spawn'" in str(
        (await delegating.results(stack, run.session_key))[-1]
    )
    said = await watching.transcript(stack, run.session_key)
    assert [message.text for message in said if message.role == "assistant"][1] == "noted"
    assert len(said) == 9
    # It is at work while there is something to answer, and no longer.
    closed = await watching.event(stack, run.session_key, EventKind.SESSION_CLOSED)
    assert closed.payload == {}
    assert await delegating.runs(stack, key) == [
        run.model_copy(update={"handed_at": (await delegating.all_handed(stack, key))[0].handed_at})
    ]
    assert (await stack.client.status(key)).turns == 1


async def test_runs_are_listed_and_waited_for(stack: Stack) -> None:
    """All that are under way, or those that are named; until they end, or the time is over."""
    key = fresh_key("wait")
    await ask(
        stack,
        key,
        *(spawn(f"/sleep {s}", "/say ok", later=True) for s in (0.5, 600)),
        "---",
        subagents("wait", targets=["{{1.run_id}}"]),
        "---",
        subagents("wait", timeout_ms=300),
        "---",
        subagents("list"),
        "---",
        subagents("kill", target="{{2.run_id}}"),
        "---",
        subagents("wait"),
    )
    found = await delegating.runs(stack, key)
    quick, endless = sorted(found, key=lambda run: "600" in run.packet.task)
    results = await delegating.results(stack, key)
    named, timed_out, listed, killed, last = results[2:7]
    assert [run["run_id"] for run in named["finished"]] == [quick.run_id]
    assert named["finished"][0]["status"] == "completed"
    assert named["running"] == []
    assert timed_out == {"finished": [], "running": [endless.run_id]}
    assert listed["total"] == 2
    one = {run["run_id"]: run for run in listed["runs"]}[endless.run_id]
    assert (one["status"], one["depth"], one["max_steps"]) == ("running", 1, 40)
    assert one["task"] == "/sleep 600\n/say ok"
    assert killed == {
        "killed": True,
        "run_id": endless.run_id,
        "descendants": 0,
        "status": "stopping",
    }
    finished = [(run["run_id"], run["end_reason"]) for run in last["finished"]]
    # It may have ended before the wait began.
    assert finished in ([], [(endless.run_id, "killed")])
    assert last["running"] == []
