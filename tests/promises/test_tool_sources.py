"""Tools of MCP servers: pinned to a turn, judged, claimed, told; whatever the servers do."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from activities.post import workflow_id
from perdure.domain.labels import Label
from perdure.domain.states import TurnState
from tests.support import watching
from tests.support.in_process import perdure_here
from tests.support.policed import ask, audit, call, label, raises, refusal, results, rule
from tests.support.stack import ROOT, Stack, fresh_key, running_stack, until
from worker import workflow_runner
from workflows.session import Session

SCRIPT = ROOT / "tests" / "support" / "mcp_server.py"


def _table(name: str, folder: str, more: str = "") -> str:
    return f"""
[mcp.{name}]
command = {json.dumps(sys.executable)}
args = [{json.dumps(str(SCRIPT))}, {json.dumps(folder)}]
{more}
"""


_BOOKS = (("server", "equals", "bank"), ("tool", "matches", "book$"))

CONFIG = f"""
[agents.main]
tools = ["mcp:shop", "mcp:gone", "subagents"]

[agents.buyer]
tools = ["mcp:shop/find", "mcp:shop/relist"]

[agents.teller]
tools = ["mcp:bank", "policy"]

[agents.surfer]
tools = ["mcp:web", "mcp:mute"]

[mcp.mute]
command = "sleep"
args = ["60"]
connect_timeout = 1.0

[mcp.gone]
command = "/nowhere/mcp-server"

[mcp.web]
url = "http://127.0.0.1:PORT/mcp"
headers = {{ Authorization = "Bearer ${{WEB_TOKEN}}" }}

{_table("shop", "shop", 'read_only = ["slow_find"]')}
{_table("bank", "bank", 'clearance = "CONFIDENTIAL"')}

{rule("no-books", "MCP_TOOL_CALL", "BLOCK", *_BOOKS)}
"""


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("home")
    for name in ("shop", "bank", "web"):
        (home / name).mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    web = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), str(home / "web"), str(port)
    )
    try:
        async with running_stack(
            home,
            temporal_address,
            config=CONFIG.replace("PORT", str(port)),
            environ={"WEB_TOKEN": "opensesame"},
        ) as stack:
            yield stack
    finally:
        web.kill()
        await web.wait()


def offers(stack: Stack, *names: str) -> None:
    """Have the shop list these tools from now on."""
    (stack.home / "shop" / "tools.json").write_text(json.dumps(names))


def calls(stack: Stack, name: str = "shop") -> list[dict[str, Any]]:
    """What a server was asked to do, in order."""
    path = stack.home / name / "calls.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def pinned(stack: Stack, key: str, turn: int) -> set[str]:
    lists = await stack.client.store.tool_lists.pinned(key, turn)
    return {tool.called for listed in lists for tool in listed.tools}


async def test_the_tools_of_a_turn_stay_what_its_first_step_saw(stack: Stack) -> None:
    offers(stack, "find", "relist")
    key = fresh_key("pinned")
    await ask(
        stack,
        key,
        call("shop__relist", text="book relist"),
        "---",
        call("shop__find", text="late"),
        call("shop__book", text="early"),
        "---",
        "/say done",
    )
    _, late, early = await results(stack, key)
    # It is offered still, and the server says that it has it no more.
    assert "Unknown tool: find" in refusal(late)["message"]
    assert "There is no tool named 'shop__book'" in refusal(early)["message"]
    assert {"shop__find", "shop__relist"} <= await pinned(stack, key, 1)

    await ask(stack, key, call("shop__book", text="now"), "---", "/say done")
    assert (await results(stack, key))[-1] == "book: now"
    assert {name for name in await pinned(stack, key, 2) if "shop" in name} == {
        "shop__book",
        "shop__relist",
    }
    # The history of both turns has none of it, and replays whatever the shop offers by now.
    replayer = Replayer(
        workflows=[Session],
        data_converter=pydantic_data_converter,
        workflow_runner=workflow_runner(),
    )
    recorded = await watching.history(stack, key)
    await replayer.replay_workflow(WorkflowHistory(workflow_id(key), recorded))


async def test_another_worker_goes_on_with_the_turns_tools_and_repeats_no_call(
    stack: Stack,
) -> None:
    offers(stack, "find", "slow")
    key = fresh_key("handed-over")
    ticket = await stack.client.send(
        key,
        "\n".join(
            [
                call("shop__slow", text="20"),
                "---",
                call("shop__find", text="after"),
                "---",
                "/say done",
            ]
        ),
    )

    async def begun() -> bool:
        return any(one["tool"] == "slow" for one in calls(stack))

    await until(begun)
    stack.worker.kill()
    offers(stack, "book")
    stack.worker.start()
    result = await stack.client.wait(key, ticket.message_id, timeout=60)
    assert result.state is TurnState.COMPLETED
    slow, after = await results(stack, key)
    assert "Unknown outcome: shop__slow was started" in refusal(slow)["message"]
    (begun_by,) = [one["pid"] for one in calls(stack) if one["tool"] == "slow"]
    # It is not run again, and the process that ran it went with the worker that started it.
    assert not _lives(begun_by)
    # The new worker knows the tool, which no server lists any more.
    assert "Unknown tool: find" in refusal(after)["message"]


async def test_a_session_above_a_servers_level_tells_it_nothing(stack: Stack) -> None:
    offers(stack, "find")
    key = fresh_key("above")
    before = len(calls(stack))
    await ask(
        stack, key, call("shop__find", text="our plan"), "---", "/say done", label=Label.INTERNAL
    )
    told = refusal((await results(stack, key))[0])
    assert told["code"] == "denied"
    assert "this goes to a place that is PUBLIC" in told["message"]
    assert len(calls(stack)) == before
    asked = await audit(stack, key, "MCP_TOOL_CALL")
    assert [one.decided_by for one in asked] == ["invariant:label-flow"]


async def test_what_a_server_tells_raises_the_session_to_its_level(stack: Stack) -> None:
    key = fresh_key("raised") + "~agent~teller"
    await ask(stack, key, call("bank__find", text="balance"), "---", "/say done")
    assert (await results(stack, key))[0] == "find: balance"
    assert await label(stack, key) is Label.CONFIDENTIAL
    assert ("PUBLIC", "CONFIDENTIAL", "tool bank__find") in await raises(stack, key)


async def test_a_rule_on_a_server_and_a_tool_stops_a_call_before_it_leaves(stack: Stack) -> None:
    key = fresh_key("ruled") + "~agent~teller"
    await ask(
        stack,
        key,
        call("bank__book", text="transfer"),
        call("simulate_tool_call", tool_name="bank__book", args={"text": "x"}),
        "---",
        "/say done",
    )
    told, simulated = await results(stack, key)
    assert refusal(told)["message"] == "The rule no-books forbids it."
    assert json.loads(simulated)["decided_by"] == "rule:no-books"
    assert not [one for one in calls(stack, "bank") if one["tool"] == "book"]


async def test_a_server_that_dies_under_a_call_is_told_and_started_anew(stack: Stack) -> None:
    offers(stack, "die", "find")
    key = fresh_key("dies")
    await ask(
        stack,
        key,
        call("shop__find", text="one"),
        "---",
        call("shop__die"),
        "---",
        call("shop__find", text="two"),
        "---",
        "/say done",
    )
    one, dead, two = await results(stack, key)
    assert (one, two) == ("find: one", "find: two")
    assert refusal(dead)["message"].startswith("Unknown outcome: shop was asked for die")
    pids = [line["pid"] for line in calls(stack)][-3:]
    assert pids[0] == pids[1] != pids[2]
    assert not _lives(pids[1])
    keys = {line["meta"]["perdure/idempotencyKey"] for line in calls(stack)[-3:]}
    assert len(keys) == 3
    # A worker that is stopped in order leaves none of them behind.
    assert await asyncio.to_thread(stack.worker.terminate) == 0
    assert not _lives(pids[2])
    stack.worker.start()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie would still have its number: somebody must have waited for it.
    return Path(f"/proc/{pid}").exists()


async def test_results_are_described_cut_and_never_dropped_in_silence(stack: Stack) -> None:
    offers(stack, "show", "much", "fail")
    key = fresh_key("contents")
    await ask(
        stack,
        key,
        call("shop__show"),
        call("shop__much"),
        call("shop__fail", text="bread"),
        "---",
        "/say done",
    )
    shown, much, failed = await results(stack, key)
    assert "[image: image/png, 300 bytes, not shown]" in shown
    assert "[link: plan, file:///plan.txt]" in shown
    assert '{"rooms": 3}' in shown
    assert len(much) < 60_000
    assert ".results/" in much or "1-1-1.txt" in much
    assert refusal(failed)["message"] == "fail of shop failed: no bread today"


async def test_a_server_that_cannot_be_reached_costs_its_tools_and_not_the_turn(
    stack: Stack,
) -> None:
    offers(stack, "find")
    key = fresh_key("gone")
    await ask(stack, key, call("gone__help"), call("shop__find", text="here"), "---", "/say done")
    away, here = await results(stack, key)
    assert "the MCP server gone could not be reached" in refusal(away)["message"]
    assert here == "find: here"


async def test_a_child_has_of_a_servers_tools_what_its_parent_and_its_agent_have(
    stack: Stack,
) -> None:
    offers(stack, "find", "book")
    key = fresh_key("child")
    task = "\n".join(
        [call("shop__find", text="a"), call("shop__book", text="b"), "---", "/say {{1.x}}"]
    )
    escaped = task.replace("{{", "\\{{")
    await ask(
        stack,
        key,
        call("sessions_spawn", task=escaped, agent="buyer", tool_groups=["mcp:shop"]),
        "---",
        "/say done",
    )
    run = json.loads((await results(stack, key))[0])
    found, booked = await results(stack, run["session_key"])
    assert found == "find: a"
    assert "There is no tool named 'shop__book'" in refusal(booked)["message"]


async def test_a_server_by_http_is_reached_with_a_secret_and_not_held_up_by_another(
    stack: Stack,
) -> None:
    key = fresh_key("web") + "~agent~surfer"
    await ask(stack, key, call("web__find", text="far"), "---", "/say done")
    assert await results(stack, key) == ["find: far"]
    mute, web = await stack.client.store.tool_lists.pinned(key, 1)
    assert (mute.reachable, web.reachable) == (False, True)
    (asked,) = calls(stack, "web")
    assert asked["authorization"] == "Bearer opensesame"
    (access,) = await audit(stack, key, "SECRET_ACCESS")
    assert access.decision == "ALLOW"


async def test_people_see_what_servers_offer_and_what_has_changed(
    stack: Stack, tmp_path: Path
) -> None:
    offers(stack, "find")
    await ask(stack, fresh_key("seen"), "/say done")
    offers(stack, "find", "book")
    ran = await perdure_here("mcp", "sources", home=stack.home, environ=stack.environ)
    assert ran.code == 0, ran.err
    assert "shop · reachable · 2 tools" in ran.out
    assert "used by main, buyer" in ran.out
    assert "shop__book · once · Tells and does book." in ran.out
    assert "new since the last turn: shop__book" in ran.out
    assert "gone · not reachable · 0 tools" in ran.out
    assert "opensesame" not in ran.out

    (tmp_path / "perdure.toml").write_text('[mcp.gone]\ncommand = "/nowhere/mcp-server"\n')
    ran = await perdure_here("mcp", "sources", "--json", home=tmp_path, environ={})
    (gone,) = json.loads(ran.out)["sources"]
    assert (gone["name"], gone["reachable"], gone["tools"]) == ("gone", False, [])
    assert "No such file" in gone["error"]
