"""Sessions, runs and memory by MCP: called by the official client, by HTTP and by pipes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from perdure.domain.access import Scope
from perdure.domain.labels import Label
from perdure.store.audit import AuditLog
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.stack import ROOT, Stack, fresh_key, until

ALL = {
    "sessions_send",
    "sessions_wait",
    "sessions_interrupt",
    "sessions_list",
    "session_status",
    "sessions_history",
    "session_search",
    "subagents",
    "memory_search",
    "memory_get",
    "memory_store",
    "memory_manage",
}


@pytest.fixture(scope="module")
async def gateway(stack: Stack) -> AsyncIterator[GatewayProcess]:
    async with running_gateway(stack, "mcp-gateway") as running:
        yield running


def by_http(gateway: GatewayProcess, mode: str = "auto") -> Client:
    return Client(f"{gateway.url}/mcp", mode=mode)


@asynccontextmanager
async def by_pipes(stack: Stack, *options: str) -> AsyncIterator[Client]:
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "gateway.cli", "mcp", "--home", str(stack.home), *options],
        # Whatever is logged must not be taken for the protocol.
        env={**stack.environ, "LOG_LEVEL": "DEBUG", "PYTHONPATH": str(ROOT)},
    )
    with (stack.home / "mcp-stdio.log").open("w") as log:
        async with Client(stdio_client(parameters, log)) as client:
            yield client


def text(result: CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text


def fields(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, text(result)
    found: dict[str, Any] = result.structured_content
    return found


def refused(result: CallToolResult) -> dict[str, str]:
    assert result.is_error
    error: dict[str, str] = result.structured_content["error"]
    return error


async def names(client: Client) -> set[str]:
    return {tool.name for tool in (await client.list_tools()).tools}


# By HTTP -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_of_either_era_asks_and_reads_the_answer(
    gateway: GatewayProcess, mode: str
) -> None:
    key = fresh_key("mcp")
    told: list[str] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        assert done == len(told) + 1
        told.append(message or "")

    async with by_http(gateway, mode) as client:
        assert await names(client) == ALL
        lines = "/session_status {}\n---\n/sleep 1\n/say the answer"
        result = await client.call_tool(
            "sessions_send",
            {"session_key": key, "text": lines, "message_id": "m1"},
            progress_callback=progress,
        )
        assert text(result) == "the answer"
        answer = fields(result)
        assert (answer["status"], answer["turn"]["state"]) == ("answered", "completed")
        assert told[0] == "delivered as m1"
        assert "turn 1 has begun" in told
        assert "running session_status" in told
        history = await client.call_tool("sessions_history", {"session_key": key})
        assert [one["text"] for one in fields(history)["messages"]][-1] == "the answer"


async def test_what_is_refused_says_why_and_what_to_do(gateway: GatewayProcess) -> None:
    async with by_http(gateway) as client:
        gone = refused(await client.call_tool("session_status", {"session_key": "default:no-one"}))
        assert gone["code"] == "not_found"
        wrong = refused(await client.call_tool("sessions_send", {"session_key": "x", "label": 1}))
        assert wrong["code"] == "invalid_argument"
        assert "there is no argument label" in wrong["message"]
        with pytest.raises(MCPError, match="There is no tool 'ctx_search' for you"):
            await client.call_tool("ctx_search", {"query": "x"})


async def test_the_same_message_id_is_the_same_message_and_the_same_answer(
    gateway: GatewayProcess, stack: Stack
) -> None:
    key = fresh_key("once")
    asked = {"session_key": key, "text": "/say only once", "message_id": "order-1"}
    async with by_http(gateway) as client:
        first = fields(await client.call_tool("sessions_send", asked))
        again = fields(await client.call_tool("sessions_send", asked))
        assert again == first
        other = await client.call_tool("sessions_send", {**asked, "text": "/say another"})
        assert refused(other)["code"] == "conflict"
    assert (await stack.client.status(key)).turns == 1


async def test_a_wait_that_ends_leaves_the_turn_alone_and_says_how_to_come_back(
    gateway: GatewayProcess, stack: Stack
) -> None:
    key = fresh_key("late")
    asked = {"session_key": key, "text": "/sleep 1.5\n/say late", "message_id": "late-1"}
    back = {"session_key": key, "message_id": "late-1"}
    async with by_http(gateway) as client:
        short = refused(await client.call_tool("sessions_send", {**asked, "timeout_ms": 300}))
        assert short["code"] == "timeout"
        assert 'message_id "late-1"' in short["hint"]
        waiting = asyncio.create_task(client.call_tool("sessions_wait", back))
        await asyncio.sleep(0.3)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert text(await client.call_tool("sessions_wait", back)) == "late"
    assert (await stack.client.status(key)).turns == 1


async def _is_there(stack: Stack, key: str) -> bool:
    listed = await stack.client.sessions()
    return any(one.session_key == key for one in listed.sessions)


async def test_another_gateway_answers_when_one_dies_under_a_wait(
    gateway: GatewayProcess, stack: Stack
) -> None:
    key = fresh_key("moved")
    asked = {"session_key": key, "text": "/sleep 2\n/say moved", "message_id": "moved-1"}
    async with running_gateway(stack, "mcp-dying") as dying:
        # The client tells in two ways that its server is gone: to the call, and at its own end.
        with pytest.raises(ExceptionGroup):  # noqa: PT012
            async with by_http(dying) as client:
                waiting = asyncio.create_task(client.call_tool("sessions_send", asked))
                await until(lambda: _is_there(stack, key))
                dying.kill()
                with pytest.raises(MCPError):
                    await waiting
    async with by_http(gateway) as client:
        back = {"session_key": key, "message_id": "moved-1"}
        assert text(await client.call_tool("sessions_wait", back)) == "moved"
        assert text(await client.call_tool("sessions_send", asked)) == "moved"
    assert (await stack.client.status(key)).turns == 1


async def test_a_gateway_that_stops_ends_its_waits_and_says_how_to_come_back(
    stack: Stack,
) -> None:
    key = fresh_key("stopped")
    async with running_gateway(stack, "mcp-stopping") as stopping, by_http(stopping) as client:
        asked = {"session_key": key, "text": "/sleep 2\n/say x", "message_id": "stop-1"}
        waiting = asyncio.create_task(client.call_tool("sessions_send", asked))
        await until(lambda: _is_there(stack, key))
        assert await stopping.terminate() == 0
        told = refused(await waiting)
        assert told["code"] == "unavailable"
        assert 'message_id "stop-1"' in told["hint"]


async def test_runs_are_listed_waited_for_steered_and_killed(gateway: GatewayProcess) -> None:
    key = fresh_key("runs")
    spawn = json.dumps({"task": "/sleep 30\n/say child", "async": True})
    async with by_http(gateway) as client:
        sent = {"session_key": key, "text": f"/sessions_spawn {spawn}\n---\n/say begun"}
        assert text(await client.call_tool("sessions_send", sent)) == "begun"
        listed = fields(await client.call_tool("subagents", {"session_key": key}))
        assert listed["total"] == 1
        target = listed["runs"][0]["run_id"]
        late = {"action": "wait", "target": target, "timeout_ms": 100}
        assert refused(await client.call_tool("subagents", late))["code"] == "timeout"
        nothing = await client.call_tool("subagents", {"action": "steer", "target": target})
        assert refused(nothing)["code"] == "invalid_argument"
        killed = await client.call_tool("subagents", {"action": "kill", "target": target})
        assert fields(killed)["killed"]["killed"] is True
        ended = await client.call_tool("subagents", {"action": "wait", "target": target})
        assert fields(ended)["result"]["end_reason"] == "killed"


async def test_memory_is_stored_found_read_and_forgotten(gateway: GatewayProcess) -> None:
    async with by_http(gateway) as client:
        what = {"content": "The harbour ferry leaves at 7.40.", "key": "mcp/ferry"}
        stored = fields(await client.call_tool("memory_store", what))
        found = fields(await client.call_tool("memory_search", {"query": "when does the ferry go"}))
        assert found["results"][0]["id"] == stored["id"]
        entry = fields(await client.call_tool("memory_get", {"path": stored["path"]}))
        assert (entry["content"], entry["trust"]) == (what["content"], "external")
        gone = {"manage_action": "delete", "ids": [stored["id"]]}
        assert fields(await client.call_tool("memory_manage", gone))["changed"] == [stored["id"]]
        other = {"manage_action": "stats", "tenant_id": "default"}
        assert fields(await client.call_tool("memory_manage", other))["stats"]["entries"] >= 0


async def test_foreign_hosts_and_oversized_bodies_are_stopped_before_the_protocol(
    gateway: GatewayProcess,
) -> None:
    async with httpx2.AsyncClient(base_url=gateway.url) as http:
        rebound = await http.post("/mcp", json={}, headers={"Host": "evil.example"})
        assert rebound.status_code == 403
        large = await http.post("/mcp", content=b" " * 4_000_000)
        assert large.status_code == 413
        error = large.json()["error"]
        assert (error["code"], error["data"]["code"]) == (-32600, "limit_exceeded")
        assert (await http.get("/mcp")).status_code == 405


async def test_a_key_says_which_tools_and_sessions_there_are(
    gateway: GatewayProcess, stack: Stack
) -> None:
    made = await stack.client.keys.create("shop", scopes={Scope.CHAT}, tenant="shop")
    own, foreign = fresh_key("keyed").replace("default:", "shop:"), fresh_key("keyed")
    headers = {"Authorization": f"Bearer {made.text}"}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(f"{gateway.url}/mcp", http_client=http)) as client,
    ):
        listed = (await client.list_tools()).tools
        assert {tool.name for tool in listed} == {"sessions_send", "sessions_wait"}
        assert (listed[0].description or "").endswith("Your session keys begin with shop:")
        sent = {"session_key": own, "text": "/say mine"}
        assert text(await client.call_tool("sessions_send", sent)) == "mine"
        elsewhere = {"session_key": foreign, "text": "/say theirs"}
        assert refused(await client.call_tool("sessions_send", elsewhere))["code"] == "not_found"

    async with httpx2.AsyncClient(headers={"Authorization": "Bearer pdr_no_good"}) as http:
        answer = await http.post(f"{gateway.url}/mcp", json={})
        assert answer.status_code == 401
        assert answer.json()["error"]["data"]["code"] == "unauthenticated"


# By pipes ------------------------------------------------------------------------------------


async def test_a_client_that_starts_the_server_has_what_its_options_give(stack: Stack) -> None:
    key, above = fresh_key("pipes"), fresh_key("above")
    await stack.client.ask(above, "/say secret words", label=Label.CONFIDENTIAL, timeout=60)
    options = ("--tenant", "acme", "--clearance", "INTERNAL", "--scope", "chat", "--scope", "read")
    async with by_pipes(stack, *options) as client:
        assert await names(client) == ALL - {"sessions_interrupt", "memory_store", "memory_manage"}
        foreign = await client.call_tool("sessions_send", {"session_key": key, "text": "/say x"})
        assert refused(foreign)["code"] == "not_found"
        hidden = await client.call_tool("sessions_history", {"session_key": above})
        assert refused(hidden)["code"] == "not_found"
        mine = key.replace("default:", "acme:")
        sent = {"session_key": mine, "text": "/say through a pipe"}
        assert text(await client.call_tool("sessions_send", sent)) == "through a pipe"
        listed = fields(await client.call_tool("sessions_list", {}))
        assert {one["session_key"].partition(":")[0] for one in listed["sessions"]} == {"acme"}
        kill = await client.call_tool("subagents", {"action": "kill", "target": "run_x"})
        assert refused(kill)["code"] == "denied"
        with pytest.raises(MCPError, match="There is no tool 'memory_manage'"):
            await client.call_tool("memory_manage", {"manage_action": "stats"})
        slow = {"session_key": mine, "text": "/sleep 2\n/say slow", "message_id": "slow-1"}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await client.call_tool("sessions_send", slow)
        back = {"session_key": mine, "message_id": "slow-1"}
        assert text(await client.call_tool("sessions_wait", back)) == "slow"
    trail = await AuditLog(stack.client.store.database).page(limit=10_000)
    noted = {one.reason for one in trail if one.hook == "ACCESS"}
    assert {
        "The tool memory_manage needs the scope admin.",
        "The tool subagents needs the scope steer.",
    } <= noted
