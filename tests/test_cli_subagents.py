"""Runs on the command line: seen whole, steered, stopped, and their results had."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from perdure.domain.labels import Label
from perdure.store.run_views import RunView
from tests.support.in_process import perdure_here
from tests.support.stack import Stack, fresh_key, running_stack, until
from tests.support.terminal import Ran, Terminal, on_terminal

CONFIG = """
[gateway]
level = "INTERNAL"

[limits]
children = 3

[agents.main]
model = "rehearsal"
tools = ["files", "subagents", "tests.support.gate_tools:gate"]

[agents.listener]
model = "rehearsal"
tools = ["files", "subagents", "tests.support.gate_tools:gate"]
steer_inject = true
"""
CTRL_C, ENTER = "\x03", "\r"


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("subagents")
    async with running_stack(home, temporal_address, config=CONFIG) as running:
        yield running


async def cli(stack: Stack, *arguments: str, code: int = 0) -> Ran:
    ran = await perdure_here(*arguments, home=stack.home, environ=stack.environ)
    assert ran.code == code, ran
    return ran


async def document(stack: Stack, *arguments: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await cli(stack, *arguments, "--json", code=code)).out)
    return found


def terminal(stack: Stack, *arguments: str) -> AbstractAsyncContextManager[Terminal]:
    return on_terminal(*arguments, home=stack.home, environ=stack.environ)


def gate(stack: Stack, name: str) -> str:
    """The directive that waits until `opened` lets it through."""
    return "/gate " + json.dumps({"file": str(stack.home / name)})


def opened(stack: Stack, name: str) -> None:
    (stack.home / name).touch()


def spawn(task: str, **more: Any) -> str:
    return "/sessions_spawn " + json.dumps({"task": task, "async": True, **more})


async def spawned(stack: Stack, name: str, *directives: str, most: int = 1) -> str:
    """A session that has spawned runs, `most` of them in all."""
    key = fresh_key(name)
    await stack.client.ask(key, "\n".join([*directives, "---", "/say spawned"]))

    async def all_there() -> bool:
        return len(await runs_of(stack, key)) == most

    await until(all_there)
    return key


async def runs_of(stack: Stack, key: str) -> tuple[RunView, ...]:
    return (await stack.client.runs.list(key)).runs


async def test_a_tree_shows_each_run_below_what_spawned_it_and_the_list_names_them_whole(
    stack: Stack,
) -> None:
    held = gate(stack, "never")
    nested = spawn(held, agent="listener") + f"\n---\n{held}"
    key = await spawned(stack, "tree", spawn(nested), spawn("/say short"), most=3)

    async def one_done() -> bool:
        return {run.status for run in await runs_of(stack, key)} == {"running", "completed"}

    await until(one_done)
    outer, inner = sorted(
        (run for run in await runs_of(stack, key) if run.status == "running"),
        key=lambda run: run.depth,
    )
    (done,) = (run for run in await runs_of(stack, key) if run.status == "completed")

    found = await document(stack, "tree", key)
    (session,) = found["sessions"]
    assert (session["session_key"], session["last_tool"]) == (key, "sessions_spawn")
    below = {run["run_id"]: run["runs"] for run in session["runs"]}
    assert {name: [run["run_id"] for run in runs] for name, runs in below.items()} == {
        outer.run_id: [inner.run_id],
        done.run_id: [],
    }
    drawn = (await cli(stack, "tree", key)).out
    assert f"─ {outer.run_id}" in drawn
    assert f"  └─ {inner.run_id}" in drawn
    line = next(line for line in drawn.splitlines() if done.run_id in line)
    assert line.split()[2:4] == ["completed", "1/50"]
    assert line.endswith("/say short")
    everything = await document(stack, "tree")
    assert key in [tree["session_key"] for tree in everything["sessions"]]

    page = await document(stack, "subagents", key, "--limit", "2")
    assert (len(page["runs"]), page["total"]) == (2, 3)
    listed = (await cli(stack, "subagents", key, "--limit", "1")).out
    assert f"More: perdure subagents {key} --offset 1" in listed
    told = (await cli(stack, "subagents", key, "--offset", "1")).out
    assert f"session {inner.session_key}" in listed + told
    assert "children  1 run under way" in (await cli(stack, "status", key)).out


async def test_a_kill_asks_at_a_terminal_and_takes_the_subtree_with_it(stack: Stack) -> None:
    key = await spawned(stack, "kill", spawn(spawn("/sleep 60") + "\n---\n/sleep 60"), most=2)
    outer = next(run for run in await runs_of(stack, key) if run.depth == 1)
    async with terminal(stack, "kill", outer.run_id) as asking:
        await asking.sees(f"Stop {outer.run_id} and all runs below it?")
        asking.type("n" + ENTER)
        assert await asking.ends() == 1
    assert {run.status for run in await runs_of(stack, key)} == {"running"}

    ran = await cli(stack, "kill", outer.run_id, "--yes")
    assert ran.out == f"{outer.run_id} is stopping, with 1 run below it.\n"

    async def both_ended() -> bool:
        return {run.status for run in await runs_of(stack, key)} == {"killed"}

    await until(both_ended)
    again = await document(stack, "kill", outer.run_id, "--yes")
    assert (again["killed"], again["status"]) == (False, "killed")
    none = await document(stack, "kill", "run_main_none", "--yes", code=3)
    assert none["error"]["code"] == "not_found"


async def test_a_steered_run_gives_its_place_to_another_whose_result_is_had_by_either_name(
    stack: Stack,
) -> None:
    key = await spawned(stack, "steer", spawn("/sleep 60"))
    (old,) = await runs_of(stack, key)
    told = f"{gate(stack, 'steered')}\n---\n/say the other thing"
    steered = await document(stack, "steer", old.run_id, told)
    assert (steered["status"], steered["old_run_id"]) == ("steered", old.run_id)
    new = steered["new_run_id"]
    too_soon = await document(stack, "steer", new, "/say a third", code=4)
    assert too_soon["error"]["code"] == "rate_limited"
    opened(stack, "steered")

    found = await document(stack, "result", old.run_id, "--wait", "--timeout", "60")
    assert (found["run_id"], found["response"]) == (new, "the other thing")
    whole = await asyncio.to_thread(Path(found["full_result"]).read_text)
    assert whole == "the other thing"
    ran = await cli(stack, "result", new)
    assert ran.out == "the other thing\n"
    assert f"full result: {found['full_result']}" in ran.err


async def test_a_message_joins_the_turn_of_a_run_that_listens_and_chat_tells_of_it(
    stack: Stack,
) -> None:
    task = f"{gate(stack, 'told')}\n---\n{gate(stack, 'seen')}\n---\n/say as told"
    key = await spawned(stack, "inject", spawn(task, agent="listener"))
    (run,) = await runs_of(stack, key)
    none_yet = await cli(stack, "result", run.run_id, code=124)
    assert f"{run.run_id} is running; it has no result yet" in none_yet.err
    async with terminal(stack, "chat", run.session_key) as watching:
        await watching.sees("→ gate")
        ran = await cli(stack, "steer", run.run_id, "/say as steered")
        assert ran.out == f"{run.run_id} takes it in at its next step.\n"
        opened(stack, "told")
        await watching.sees("‹ someone else: /say as steered")
    opened(stack, "seen")
    found = await document(stack, "result", run.run_id, "--wait")
    assert (found["status"], found["response"]) == ("completed", "as steered")
    told = (await cli(stack, "events", run.session_key)).out
    assert "message.joined" in told


async def test_a_run_that_failed_exits_1_and_is_not_steered(stack: Stack) -> None:
    key = await spawned(stack, "fails", spawn("/fail auth 1"))
    (run,) = await runs_of(stack, key)
    ran = await cli(stack, "result", run.run_id, "--wait", code=1)
    assert f"{run.run_id} is failed" in ran.err
    assert (await document(stack, "result", run.run_id, code=1))["status"] == "failed"
    late = await cli(stack, "steer", run.run_id, "/say too late", code=1)
    assert late.out == f"{run.run_id} is failed; nothing was done.\n"


async def test_a_watched_tree_follows_what_happens_until_ctrl_c(stack: Stack) -> None:
    key = fresh_key("watch")
    await stack.client.ask(key, "/say hi")
    async with terminal(stack, "tree", key, "--watch") as watching:
        await watching.sees("turn 1")
        await stack.client.ask(key, spawn(gate(stack, "watched")))
        (run,) = await runs_of(stack, key)
        await watching.sees(f"└─ {run.run_id}  running")
        opened(stack, "watched")
        await watching.sees(f"└─ {run.run_id}  completed")
        watching.type(CTRL_C)
        assert await watching.ends() == 130


async def test_a_chat_tells_of_runs_between_turns_and_goes_on_listening(stack: Stack) -> None:
    key = fresh_key("chat")
    async with terminal(stack, "chat", key) as chat:
        await chat.sees("›")
        chat.type(spawn("/fail auth 1") + ENTER)
        await chat.sees("has begun")
        await chat.sees("has ended: failed")
        await chat.sees("[Subagent Result:")
        await chat.sees("turn 2 ·")
        chat.type("/say still here" + ENTER)
        await chat.sees("› /say still here")
        await chat.sees("still here")


async def test_runs_above_the_gateways_level_are_not_there(stack: Stack) -> None:
    key = fresh_key("above")
    tasks = [spawn(f"/sleep {60 + number}") for number in range(4)]
    await stack.client.ask(key, "\n".join(tasks), label=Label.CONFIDENTIAL)

    async def all_there() -> bool:
        return (await stack.client.store.run_views.below(key)).total == 4

    await until(all_there)
    every = await stack.client.store.run_views.below(key)
    # The task of the one in the queue is in its mailbox still, and its session at PUBLIC.
    assert "queued" in {run.status for run in every.runs}
    assert (await document(stack, "subagents", key))["total"] == 0
    assert (await document(stack, "tree", key))["sessions"][0]["runs"] == []
    for run in every.runs:
        refused = await document(stack, "result", run.run_id, code=3)
        assert refused["error"]["code"] == "not_found"
