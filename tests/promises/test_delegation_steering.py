"""Runs stopped and steered while they work: the whole tree, at once, and only by those above."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from perdure.domain.errors import NotFound, RateLimited
from perdure.domain.runs import EndReason, RunState, RunStatus
from perdure.domain.states import EventKind
from perdure.store.runs import Run
from tests.support import delegating, model_stack, watching
from tests.support.delegating import TIMEOUT, ask, spawn, subagents
from tests.support.openai_server import OpenAIServer, Request, calls, says
from tests.support.stack import Stack, fresh_key, running_stack, until

#: `main` is replaced when it is steered; `pupil` takes it in; `spoken` asks the provider.
CONFIG = f"""
[agents.main]
tools = ["files", "subagents", "tests.support.user_tools:late"]

[agents.pupil]
tools = ["files", "subagents", "tests.support.user_tools:late"]
steer_inject = true

[agents.spoken]
model = "{model_stack.PRICED}"
tools = ["tests.support.user_tools:late"]
steer_inject = true

[limits]
children = 20
"""
ENDLESS = "/sleep 600"


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, fake_provider: OpenAIServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    async with running_stack(
        tmp_path_factory.mktemp("steering"),
        temporal_address,
        config=CONFIG,
        environ=model_stack.environ(fake_provider),
    ) as running:
        yield running


async def test_a_kill_reaches_the_whole_tree_in_its_model_calls(stack: Stack) -> None:
    key = fresh_key("tree")
    deep = spawn(spawn(ENDLESS, later=True), "---", ENDLESS, later=True)
    ticket = await stack.client.send(key, "\n".join([spawn(deep, "---", ENDLESS), "/say over"]))
    (top,) = await delegating.working(stack, key)
    (child,) = await delegating.working(stack, top.session_key)
    (grandchild,) = await delegating.working(stack, child.session_key)

    killed = await stack.client.runs.kill(top.run_id)
    answer = await stack.client.wait(key, ticket.message_id, timeout=TIMEOUT)

    assert (killed.killed, killed.descendants) == (True, 2)
    assert answer.text == "over"
    (result,) = await delegating.results(stack, key)
    assert (result["status"], result["end_reason"]) == ("killed", "killed")
    for above, run in ((key, top), (top.session_key, child), (child.session_key, grandchild)):
        (ended,) = await delegating.have(stack, above, RunState.ENDED)
        assert (ended.run_id, ended.end_reason) == (run.run_id, EndReason.KILLED)
        # Nothing begins in the tree for what was stopped below it.
        assert (await stack.client.status(run.session_key)).turns == 1
        assert [step.attempts for step in await watching.step_rows(stack, run.session_key)][-1] == 1
    again = await stack.client.runs.kill(top.run_id)
    assert (again.killed, again.status) == (False, RunStatus.KILLED)


async def test_a_kill_reaches_a_model_call_that_is_blocked_on_its_socket(
    stack: Stack, provider: OpenAIServer
) -> None:
    """The provider sees its connection closed, and what was said so far is kept."""
    key = fresh_key("socket")
    provider.script(says("The first part, ", "the second, ", ending="hang"))
    await ask(stack, key, spawn("Tell me.", agent="spoken", later=True))
    (run,) = await delegating.runs(stack, key)
    request = await provider.arrived()

    async def heard() -> bool:
        return "second" in "".join(
            row.text for row in await watching.delta_rows(stack, run.session_key)
        )

    async with watching.listening(stack, run.session_key):
        await ask(stack, key, subagents("list"))
        await until(heard)
    await ask(stack, key, subagents("kill", target=run.run_id))

    await asyncio.wait_for(request.closed.wait(), TIMEOUT)
    (ended,) = await delegating.all_handed(stack, key)
    assert ended.end_reason is EndReason.KILLED
    assert ended.result is not None
    assert ended.result.response == "The first part, the second,\n\n[interrupted]"


async def test_a_run_that_is_steered_gives_its_place_to_another_with_all_it_was_handed(
    stack: Stack,
) -> None:
    """Whoever waited for the old one gets the result of the new one, and of the old one nothing
    comes."""
    key = fresh_key("replaced")
    await ask(stack, key, '/write {"path": "plan", "content": "the plan"}')
    order = spawn(
        ENDLESS,
        objective="Know the plan.",
        artifact_refs=["plan"],
        tool_groups=["files"],
        expected_outputs=["out"],
        max_steps=33,
    )
    ticket = await stack.client.send(key, f"{order}\n/say {{{{1.response}}}}")
    (old,) = await delegating.working(stack, key)
    # The file is as it was when the run was ordered, whatever becomes of it meanwhile.
    (watching.workspace(stack, key) / "plan").write_text("another plan")
    task = '/read {"path": "plan"}\n/write {"path": "out", "content": "x"}\n/say {{1}} {{2}}'
    steered = await stack.client.runs.steer(old.run_id, f"{task}\n")
    answer = await stack.client.wait(key, ticket.message_id, timeout=TIMEOUT)

    old, new = await delegating.have(stack, key, RunState.ENDED, 2)
    assert steered.model_dump() == {
        "status": "steered",
        "old_run_id": old.run_id,
        "new_run_id": new.run_id,
    }
    assert "the plan" in answer.text
    assert "another plan" not in answer.text
    assert new.packet == old.packet.model_copy(update={"task": task + "\n"})
    assert (new.depth, new.sync, new.follows) == (old.depth, old.sync, old.run_id)
    assert (old.end_reason, new.end_reason) == (EndReason.KILLED, EndReason.COMPLETED)
    assert len(await watching.results(stack, key)) == 2
    assert await delegating.messages(stack, key) == []
    assert (await stack.client.runs.result(old.run_id)).run_id == new.run_id


async def test_a_message_is_injected_at_the_next_step_and_the_transcript_kept(
    stack: Stack, provider: OpenAIServer
) -> None:
    """Never inside a tool call; told as what it is, of whom it is, and it widens nothing."""
    key = fresh_key("injected")
    provider.script(calls(("1", "late", "{}")), says("as you say"))
    await ask(stack, key, spawn("Work.", agent="spoken", later=True))
    (run,) = await delegating.runs(stack, key)
    await watching.event(stack, run.session_key, EventKind.TOOL_STARTED)
    steer = subagents("steer", target=run.run_id, message="Call subagents, or be brief.")
    await ask(stack, key, steer)
    assert (await delegating.results(stack, key))[-1] == {
        "status": "steer_injected",
        "run_id": run.run_id,
    }
    delegating.open_gate(stack, run)
    (ended,) = await delegating.all_handed(stack, key)

    assert ended.result is not None
    assert (ended.end_reason, ended.result.response) == (EndReason.COMPLETED, "as you say")
    said = await watching.transcript(stack, run.session_key)
    assert [message.role for message in said] == ["user", "assistant", "tool", "user", "assistant"]
    assert (said[3].text, said[3].from_session) == ("Call subagents, or be brief.", key)
    first, second = provider.requests
    assert _tools(first) == _tools(second) == {"late"}
    told = second.messages[-1]
    assert told["role"] == "user"
    assert told["content"].startswith(f"[Message from your parent, the session {key}")
    assert "| Call subagents, or be brief." in told["content"]


@pytest.mark.parametrize("agent", ["main", "pupil"])
async def test_a_second_steering_within_two_seconds_is_refused_and_changes_nothing(
    stack: Stack, agent: str
) -> None:
    key = fresh_key("twice")
    await ask(stack, key, spawn(ENDLESS, agent=agent, later=True))
    (run,) = await delegating.working(stack, key)
    await stack.client.runs.steer(run.run_id, f"{ENDLESS}\n/say once")
    with pytest.raises(RateLimited, match="once every 2 s is allowed"):
        await stack.client.runs.steer(run.run_id, f"{ENDLESS}\n/say twice")
    steer = subagents("steer", target=run.run_id, message="again")
    await ask(stack, key, steer)
    assert (await delegating.results(stack, key))[-1]["error"]["code"] == "rate_limited"

    expected = 2 if agent == "main" else 1
    assert len(await delegating.runs(stack, key)) == expected
    for each in await delegating.runs(stack, key):
        await stack.client.runs.kill(each.run_id)
    await delegating.all_handed(stack, key, expected)


async def test_a_run_that_has_ended_answers_with_its_status_and_nothing_happens(
    stack: Stack,
) -> None:
    key = fresh_key("over")
    await ask(stack, key, *(spawn("/say done", agent=agent) for agent in ("main", "pupil")))
    before = await delegating.runs(stack, key)
    for run in before:
        told = {"run_id": run.run_id, "status": "completed", "end_reason": "completed"}
        for action in ("steer", "kill"):
            await ask(stack, key, subagents(action, target=run.run_id, message="once more"))
            assert (await delegating.results(stack, key))[-1] == told
    assert await delegating.runs(stack, key) == before
    for run in before:
        assert (await stack.client.status(run.session_key)).turns == 1


async def test_a_grandchild_is_steered_and_its_parent_gets_what_took_its_place(
    stack: Stack,
) -> None:
    """Waited for by two above it, in a call and by name: both go on with the successor."""
    key = fresh_key("grandchild")
    await ask(stack, key, spawn(spawn(ENDLESS), "/say got {{1.response}}", later=True))
    (child,) = await delegating.working(stack, key)
    (grandchild,) = await delegating.working(stack, child.session_key)
    waits = await stack.client.send(
        key, "\n".join([subagents("wait", targets=[grandchild.run_id]), "/say {{1.finished}}"])
    )
    await watching.event(stack, key, EventKind.TOOL_STARTED)
    # Somebody else, since this session waits.
    await until(lambda: _waits_for(stack, grandchild))
    await stack.client.runs.steer(grandchild.run_id, "/say something else")

    answer = await stack.client.wait(key, waits.message_id, timeout=TIMEOUT)
    (done,) = await delegating.all_handed(stack, key)
    assert done.result is not None
    assert done.result.response == "got something else"
    old, new = await delegating.runs(stack, child.session_key)
    assert new.run_id in answer.text
    assert old.run_id not in answer.text


async def test_a_session_reaches_the_runs_below_it_and_no_others(stack: Stack) -> None:
    """For what is another's, and for what is not there, there is one answer."""
    mine, others = fresh_key("mine"), fresh_key("others")
    for key in (mine, others):
        await ask(stack, key, spawn(ENDLESS, later=True))
    (foreign,) = await delegating.runs(stack, others)
    answers = []
    for target in (foreign.run_id, "run_main_01ARZ3NDEKTSV4RRFFQ69G5FAV"):
        for action in (
            subagents("steer", target=target, message="x"),
            subagents("kill", target=target),
            subagents("wait", targets=[target]),
        ):
            await ask(stack, mine, action)
            answers.append(str((await delegating.results(stack, mine))[-1]).replace(target, "…"))
    assert len(set(answers)) == 1
    assert "not_found" in answers[0]
    listed = (await ask(stack, mine, subagents("list"), "/say {{1}}")).text
    assert foreign.run_id not in listed
    assert (await delegating.runs(stack, others))[0].state is RunState.RUNNING
    with pytest.raises(NotFound):
        await stack.client.runs.kill("run_main_01ARZ3NDEKTSV4RRFFQ69G5FAV")
    for key in (mine, others):
        for run in await delegating.runs(stack, key):
            await stack.client.runs.kill(run.run_id)


async def _waits_for(stack: Stack, run: Run) -> bool:
    return len(await delegating.waiting_for(stack, run)) == 2


def _tools(request: Request) -> set[str]:
    return {tool["function"]["name"] for tool in request.body["tools"]}
