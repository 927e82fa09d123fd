"""How many runs, how deep, how long they wait, how long they work, in how many steps: each limit
ends what it bounds, says so with its value, and harms nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from perdure.domain.runs import EndReason, RunState
from perdure.domain.states import TurnState
from tests.support import delegating, watching
from tests.support.delegating import TIMEOUT, ask, spawn, subagents
from tests.support.stack import Stack, fresh_key, running_stack

AGENTS = """
[agents.main]
tools = ["files", "subagents", "tests.support.user_tools:late"]

[agents.hermit]
tools = ["subagents"]
allow_spawn = ["main"]

"""
#: Waits until the test opens its gate.
GATED = ("/late {}", "---", "/say through the gate")


@pytest.fixture(scope="module")
async def wide(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    """Five places, two in the queue."""
    config = f"{AGENTS}[limits]\nspawn_queue = 2\nqueue_seconds = 600\n"
    home = tmp_path_factory.mktemp("wide")
    async with running_stack(home, temporal_address, config=config) as running:
        yield running


@pytest.fixture(scope="module")
async def narrow(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    """One place for at most four seconds, and a queue for at most two."""
    config = f"{AGENTS}[limits]\nchildren = 1\nqueue_seconds = 2\nrun_seconds = 4\nrun_steps = 30\n"
    home = tmp_path_factory.mktemp("narrow")
    async with running_stack(home, temporal_address, config=config) as running:
        yield running


async def test_a_sixth_run_waits_for_its_place_and_gets_the_first_that_is_free(wide: Stack) -> None:
    key = fresh_key("sixth")
    five = [spawn(*GATED, later=True)] * 5
    await ask(wide, key, *five, "---", spawn(*GATED, later=True))
    under_way = await delegating.have(wide, key, RunState.RUNNING, 5)
    (waiting,) = await delegating.have(wide, key, RunState.QUEUED)
    *started, queued = await delegating.results(wide, key)
    assert queued == {
        "run_id": waiting.run_id,
        "session_key": waiting.session_key,
        "async": True,
        "queued": True,
        "position": 1,
    }
    assert not any("queued" in result for result in started)
    assert waiting.started_at is None

    delegating.open_gate(wide, under_way[2])
    (ended,) = await delegating.have(wide, key, RunState.ENDED)
    promoted = await delegating.have(wide, key, RunState.RUNNING, 5)
    assert ended.run_id == under_way[2].run_id
    assert waiting.run_id in [run.run_id for run in promoted]
    for run in promoted:
        delegating.open_gate(wide, run)
    handed = await delegating.all_handed(wide, key, 6)
    assert {run.end_reason for run in handed} == {EndReason.COMPLETED}


async def test_depth_a_full_queue_and_no_queue_are_told_apart_with_their_values(
    wide: Stack, temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    key = fresh_key("full")
    await ask(wide, key, *[spawn("/sleep 600", later=True)] * 7, "---", spawn("/say one more"))
    full = (await delegating.results(wide, key))[-1]["error"]
    assert full["code"] == "limit_exceeded"
    assert "2 runs of this session wait for a place; limits.spawn_queue is 2" in full["message"]
    assert len(await delegating.runs(wide, key)) == 7
    for run in await delegating.runs(wide, key):
        await wide.client.runs.kill(run.run_id)

    config = f"{AGENTS}[limits]\nchildren = 1\nspawn_queue = 0\nspawn_depth = 1\n"
    home = tmp_path_factory.mktemp("none")
    async with running_stack(home, temporal_address, config=config) as none:
        key = fresh_key("none")
        deeper = (spawn("/say deeper"), "/say {{1.error.message}}")
        await ask(none, key, spawn(*deeper, later=True), "---", spawn("/say another"))
        (result,) = [r["error"] for r in await delegating.results(none, key) if "error" in r]
        assert result["code"] == "limit_exceeded"
        assert "limits.children is 1, and limits.spawn_queue is 0" in result["message"]
        (run,) = await delegating.all_handed(none, key)
        assert run.result is not None
        assert "would be at depth 2; limits.spawn_depth is 1" in run.result.response


async def test_a_run_that_waits_too_long_is_not_started(narrow: Stack) -> None:
    """Exactly when its time is over, and the call that waits for it goes on then, while the run
    that had the place works on."""
    key = fresh_key("too-long")
    asked = await ask(
        narrow, key, spawn("/sleep 600", later=True), "---", spawn("/say x"), "/say {{2.response}}"
    )
    first, late = await delegating.runs(narrow, key)
    assert "It waited 2 s (limits.queue_seconds) for a place, and was not started" in asked.text
    assert (late.end_reason, late.started_at) == (EndReason.FAILED, None)
    assert late.queue_until - late.queued_at == timedelta(seconds=2)
    assert late.ended_at is not None
    assert late.ended_at >= late.queue_until
    assert first.state is RunState.RUNNING


async def test_the_watchdog_ends_a_run_that_takes_too_long_and_what_is_below_it(
    narrow: Stack,
) -> None:
    key = fresh_key("watchdog")
    below = spawn("/sleep 600", later=True)
    note = '/write {"path": "note", "content": "so far"}'
    await ask(narrow, key, spawn(note, below, "---", "/sleep 600"), "/say {{1.response}}")

    (result,) = await delegating.results(narrow, key)
    assert (result["status"], result["end_reason"]) == ("failed", "watchdog_timeout")
    (run,) = await delegating.runs(narrow, key)
    (child,) = await delegating.have(narrow, run.session_key, RunState.ENDED)
    # Its own watchdog would have been the next.
    assert child.end_reason in (EndReason.KILLED, EndReason.WATCHDOG_TIMEOUT)
    assert (watching.workspace(narrow, run.session_key) / "note").read_text() == "so far"
    # It was for a run that had ended: kept, and no turn begins there for it.
    assert await delegating.kept(narrow, run.session_key) == [(child.run_id, "run ended")]
    assert (await narrow.client.status(run.session_key)).turns == 1


async def test_a_run_out_of_steps_ends_with_what_it_said_and_can_be_asked_on(
    narrow: Stack,
) -> None:
    key = fresh_key("steps")
    await ask(narrow, key, spawn(*["/ls {}", "---"] * 30, "/say never", max_steps=1))
    (result,) = await delegating.results(narrow, key)
    assert (result["status"], result["end_reason"]) == ("failed", "step_limit")
    assert "limit of 30 steps" in result["response"]

    on = await ask(narrow, result["session_key"], "/ls {}", "/say it goes on")
    assert (on.state, on.text) == (TurnState.COMPLETED, "it goes on")


async def test_a_run_whose_model_fails_says_so(narrow: Stack) -> None:
    key = fresh_key("fails")
    await ask(narrow, key, spawn('/write {"path": "a", "content": "b"}', "---", "/fail auth 1"))
    (result,) = await delegating.results(narrow, key)
    assert (result["status"], result["end_reason"]) == ("failed", "failed")
    assert "the API key is not accepted" in result["response"]


async def test_a_run_killed_in_the_queue_never_begins(narrow: Stack) -> None:
    key = fresh_key("queued")
    await ask(
        narrow,
        key,
        spawn("/sleep 1", "/say first", later=True),
        "---",
        spawn("/say never", later=True),
        "---",
        subagents("kill", target="{{2.run_id}}"),
    )
    first, second = await delegating.all_handed(narrow, key, 2)
    assert (first.end_reason, second.end_reason) == (EndReason.COMPLETED, EndReason.KILLED)
    assert second.started_at is None
    killed = (await delegating.results(narrow, key))[2]
    assert killed["status"] == "killed"
    assert (await narrow.client.status(second.session_key)).turns == 0


async def test_what_is_said_to_a_run_in_the_queue_waits_behind_its_task(wide: Stack) -> None:
    key = fresh_key("early")
    await ask(wide, key, *[spawn(*GATED, later=True)] * 5, "---", spawn("/say task", later=True))
    (waiting,) = await delegating.have(wide, key, RunState.QUEUED)
    ticket = await wide.client.send(waiting.session_key, "/say and this")
    for run in await delegating.have(wide, key, RunState.RUNNING, 5):
        delegating.open_gate(wide, run)
    answer = await wide.client.wait(waiting.session_key, ticket.message_id, timeout=TIMEOUT)

    assert (answer.text, answer.turn) == ("and this", 2)
    handed = await delegating.all_handed(wide, key, 6)
    (ended,) = [run for run in handed if run.run_id == waiting.run_id]
    assert ended.result is not None
    assert (ended.end_reason, ended.result.response) == (EndReason.COMPLETED, "task")


async def test_whom_an_agent_may_spawn_is_asked_again_when_a_place_is_free(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("allowed")
    config = f"{AGENTS}[limits]\nchildren = 1\n"
    async with running_stack(home, temporal_address, config=config) as stack:
        key = fresh_key("allowed")
        refused = spawn("/say x", agent="hermit", later=True)
        await ask(
            stack,
            key,
            spawn("/sleep 8", "/say slept", agent="main", later=True),
            "---",
            spawn("/say x", agent="main", later=True),
            "---",
            refused,
            agent="hermit",
        )
        error = (await delegating.results(stack, key))[-1]["error"]
        assert error["code"] == "denied"
        assert "its allow_spawn is main" in error["message"]

        stack.worker.kill()
        changed = config.replace('allow_spawn = ["main"]', 'allow_spawn = ["hermit"]')
        (home / "perdure.toml").write_text(changed)
        stack.worker.start()
        done, dropped = await delegating.all_handed(stack, key, 2)
        assert done.end_reason is EndReason.COMPLETED
        assert (dropped.end_reason, dropped.started_at) == (EndReason.FAILED, None)
        assert dropped.result is not None
        assert "may no longer be spawned" in dropped.result.response
