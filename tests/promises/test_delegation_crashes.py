"""Runs survive what kills everything around them: their results come, once, and nothing that was
paid for is paid again."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.client import SessionClient
from gateway.local import Stack as Local
from gateway.local import TemporalServer, running_server
from perdure.config import load_settings
from perdure.domain.runs import EndReason, RunState
from perdure.domain.states import EventKind
from tests.support import delegating, model_stack, watching
from tests.support.delegating import TIMEOUT, ask, spawn
from tests.support.openai_server import OpenAIServer, Reply, Request, calls, says
from tests.support.processes import alive
from tests.support.stack import Stack, fresh_key, running_stack, until

CHILDREN = 10
CONFIG = f"""
[agents.main]
tools = ["subagents"]

[agents.spoken]
model = "{model_stack.PRICED}"
tools = ["tests.support.user_tools:add"]

[limits]
children = {CHILDREN}
run_result_tokens = 200
"""


@pytest.fixture(scope="module")
async def frozen(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TemporalServer]:
    """A server that a test may freeze."""
    async with running_server(tmp_path_factory.mktemp("temporal")) as server:
        yield server


@pytest.fixture(scope="module")
async def mortal(
    frozen: TemporalServer, fake_provider: OpenAIServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    """A stack whose worker may die."""
    async with running_stack(
        tmp_path_factory.mktemp("home"),
        frozen.address,
        config=CONFIG,
        environ=model_stack.environ(fake_provider),
    ) as running:
        yield running


async def test_everything_is_killed_with_ten_children_in_a_step_and_all_results_come_once(
    provider: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 20: worker, gateway and Temporal at once, with -9."""
    hold = True

    def reply(request: Request) -> Reply:
        if request.messages[-1]["role"] != "tool":
            return calls(("1", "add", '{"a": 1}'))
        return says(f"{task(request)} is done", wait=600 if hold else 0)

    provider.default = reply
    for name, value in model_stack.environ(provider).items():
        monkeypatch.setenv(name, value)
    home = tmp_path / "home"
    home.mkdir()
    (home / "perdure.toml").write_text(CONFIG)
    async with Local(load_settings(home, {}), gateway=True, tell=lambda _: None) as local:
        stack = Stack(home, {"PERDURE_TEMPORAL_ADDRESS": local.info.temporal})
        async with SessionClient.connect(stack.settings) as stack.client:
            key = fresh_key("everything")
            orders = [
                spawn(f"task {number}", agent="spoken", later=True) for number in range(CHILDREN)
            ]
            await ask(stack, key, *orders, "/say ordered")
            await provider.arrived(2 * CHILDREN)
            pids = local.info.pids
            everything = [pids.temporal, pids.gateway, *pids.workers]
            for pid in everything:
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
            hold = False
            handed = await delegating.all_handed(stack, key, CHILDREN)
            # The last may have joined the turn of another, or waits for one.
            await until(lambda: _all_read(stack, key))

            assert not any(map(alive, filter(None, everything)))
            assert {run.end_reason for run in handed} == {EndReason.COMPLETED}
            results = await delegating.messages(stack, key)
            assert sorted(message.id for message in results) == sorted(
                f"result_{run.run_id}" for run in handed
            )
            for run in handed:
                assert run.result is not None
                assert run.result.response == f"{run.packet.task} is done"
                first, second = await watching.step_rows(stack, run.session_key)
                assert (first.attempts, second.attempts) == (1, 2)
            paid = Counter((task(one), len(one.messages)) for one in provider.requests)
            lengths = {length for _, length in paid}
            assert len(paid) == 2 * CHILDREN
            assert {times for (_, length), times in paid.items() if length == min(lengths)} == {1}
            assert {times for (_, length), times in paid.items() if length == max(lengths)} == {2}


async def test_killed_while_a_result_is_condensed_it_is_condensed_again_and_handed_over_once(
    mortal: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("condensing")
    summary = "## Conclusions\nIt was long."
    provider.script(says("A long word. " * 300), says("never", wait=600), says(summary))
    ticket = await mortal.client.send(
        key, "\n".join([spawn("Report.", agent="spoken"), "/say {{1.response}}"])
    )
    await provider.arrived(2)
    mortal.worker.kill()
    mortal.worker.start()
    answer = await mortal.client.wait(key, ticket.message_id, timeout=TIMEOUT)

    assert answer.text == summary
    (run,) = await delegating.all_handed(mortal, key)
    assert await delegating.messages(mortal, key) == []
    (step,) = await watching.step_rows(mortal, run.session_key)
    assert (step.attempts, step.reused) == (1, 0)
    assert len(provider.requests) == 3


async def test_killed_after_its_end_was_committed_the_parent_hears_of_it_all_the_same(
    mortal: Stack, frozen: TemporalServer, provider: OpenAIServer
) -> None:
    """Temporal is frozen while the run ends, so its worker cannot wake the parent before it is
    killed."""
    assert frozen.child is not None
    key = fresh_key("ended")
    # The summary holds the run between its last step and its end.
    provider.script(says("A long word. " * 300), says("## Conclusions\nYes.", wait=1))
    await ask(mortal, key, spawn("Report.", agent="spoken", later=True))
    await provider.arrived(2)
    os.kill(frozen.child.pid, signal.SIGSTOP)
    try:
        await delegating.have(mortal, key, RunState.ENDED)
        mortal.worker.kill()
    finally:
        os.kill(frozen.child.pid, signal.SIGCONT)
    assert await delegating.messages(mortal, key) == []
    mortal.worker.start()
    (run,) = await delegating.all_handed(mortal, key)
    await delegating.answered(mortal, key, run)

    assert len(await delegating.messages(mortal, key)) == 1
    assert len(provider.requests) == 2
    ended = await watching.events(mortal, key, EventKind.RUN_ENDED)
    assert [event.payload["run_id"] for event in ended] == [run.run_id]


async def test_killed_while_it_is_being_stopped_a_tree_stops_all_the_same(mortal: Stack) -> None:
    """The worker dies as soon as the stop is committed: nobody in the tree was told."""
    key = fresh_key("stopping")
    below = spawn("/sleep 600", later=True)
    await ask(mortal, key, spawn(below, "---", "/sleep 600", later=True))
    (run,) = await delegating.working(mortal, key)
    (child,) = await delegating.working(mortal, run.session_key)
    mortal.worker.kill()
    await mortal.client.store.stopping.stop(run.run_id, EndReason.KILLED)
    mortal.worker.start()
    for one in (run, child):
        await delegating.age(mortal, one)
    await delegating.upkeep(mortal)

    (ended,) = await delegating.all_handed(mortal, key)
    (under,) = await delegating.have(mortal, run.session_key, RunState.ENDED)
    assert (ended.end_reason, under.end_reason) == (EndReason.KILLED, EndReason.KILLED)
    for one in (run, child):
        await watching.event(mortal, one.session_key, EventKind.SESSION_CLOSED)


def task(request: Request) -> str:
    """The task of the run that asks."""
    return str(next(m["content"] for m in request.messages if m["role"] == "user"))


async def _all_read(stack: Stack, key: str) -> bool:
    """Whether a session has taken in and answered all results."""
    there = len(await delegating.messages(stack, key)) == CHILDREN
    return there and await watching.at_rest(stack, key)
