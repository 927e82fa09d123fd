"""The HTTP gateway: runs, approvals, contexts and memory, called by a real client over TCP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from perdure.domain.runs import RunState
from tests.support import delegating, policed
from tests.support.delegating import spawn
from tests.support.gateway import running_gateway
from tests.support.policed import call, pending, rule
from tests.support.stack import Stack, fresh_key, running_stack

CONFIG = f"""
[agents.main]
tools = ["files", "subagents", "sessions", "memory"]
[context]
threshold = 0.05
[memory]
embedder = "hashing"
{rule("ask", "PRE_TOOL_CALL", "REQUIRE_APPROVAL", ("tool", "equals", "write"))}
"""


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("resources")
    async with running_stack(home, temporal_address, config=CONFIG) as stack:
        yield stack


@pytest.fixture(scope="module")
async def http(stack: Stack) -> AsyncIterator[httpx2.AsyncClient]:
    async with running_gateway(stack) as gateway, gateway.client() as client:
        yield client


async def get(http: httpx2.AsyncClient, path: str, **query: Any) -> Any:
    response = await http.get(path, params=query)
    assert response.status_code == 200, response.text
    return response.json()


async def pages(http: httpx2.AsyncClient, path: str, of: str, **query: Any) -> list[Any]:
    """All rows of a list, by its links."""
    found: list[Any] = []
    response = await http.get(path, params=query or None)
    while True:
        assert response.status_code == 200, response.text
        found += response.json()[of]
        following = response.links.get("next")
        assert (following is None) == (response.json()["next"] is None)
        if following is None:
            return found
        response = await http.get(following["url"])


def at(key: str, rest: str = "") -> str:
    return f"/v1/sessions/{quote(key, safe='')}{rest}"


# Runs ----------------------------------------------------------------------------------------


async def test_a_run_is_seen_waited_for_and_its_result_read(
    stack: Stack, http: httpx2.AsyncClient
) -> None:
    key = fresh_key("run")
    await delegating.ask(stack, key, spawn("/sleep 1", "---", "/say done", later=True), "/say ok")
    (run,) = (await get(http, "/v1/runs", session_key=key))["runs"]
    path = f"/v1/runs/{run['run_id']}"
    assert (await get(http, path))["task"].endswith("/say done")
    early = await http.get(f"{path}/result")
    assert (early.status_code, early.json()["run_id"]) == (202, run["run_id"])
    result = await get(http, f"{path}/result", timeout=60)
    assert (result["status"], result["response"]) == ("completed", "done")
    tree = (await get(http, "/v1/tree", session_key=key))["sessions"]
    assert [node["run_id"] for node in tree[0]["runs"]] == [run["run_id"]]
    ended = await http.post(f"{path}/kill")
    assert (ended.status_code, ended.json()["killed"]) == (200, False)


async def test_a_kill_stops_a_run_once(stack: Stack, http: httpx2.AsyncClient) -> None:
    key = fresh_key("kill")
    await delegating.ask(stack, key, spawn("/sleep 60", later=True), "/say ok")
    (run,) = await delegating.working(stack, key)
    path = f"/v1/runs/{run.run_id}"
    headers = {"Idempotency-Key": "stop"}
    killed = (await http.post(f"{path}/kill", headers=headers)).json()
    assert (killed["killed"], killed["descendants"]) == (True, 0)
    assert (await get(http, f"{path}/result", timeout=60))["status"] == "killed"
    assert (await http.post(f"{path}/kill", headers=headers)).json()["killed"] is False


async def test_the_same_steering_steers_once(stack: Stack, http: httpx2.AsyncClient) -> None:
    key = fresh_key("steer")
    await delegating.ask(stack, key, spawn("/sleep 60", later=True), "/say ok")
    (run,) = await delegating.working(stack, key)
    path, headers = f"/v1/runs/{run.run_id}/steer", {"Idempotency-Key": "turn"}
    steered = await http.post(path, json={"text": "/say other"}, headers=headers)
    again = await http.post(path, json={"text": "/say other"}, headers=headers)
    assert steered.status_code == again.status_code == 200, again.text
    assert steered.json() == again.json()
    assert steered.json()["old_run_id"] == run.run_id
    assert len(await delegating.runs(stack, key)) == 2
    result = await get(http, f"/v1/runs/{run.run_id}/result", timeout=60)
    assert result["response"] == "other"
    late = await http.post(path, json={"text": "x"}, headers={"Idempotency-Key": "late"})
    assert (late.status_code, late.json()["code"]) == (429, "rate_limited")


async def test_runs_are_paged_while_more_are_spawned(
    stack: Stack, http: httpx2.AsyncClient
) -> None:
    key = fresh_key("runs")
    lines = [spawn(f"/say {number}", later=True) for number in range(3)]
    await delegating.ask(stack, key, *lines, "/say ok")
    first = await http.get("/v1/runs", params={"session_key": key, "limit": 2})
    await delegating.ask(stack, key, spawn("/say more", later=True), "/say ok")
    rest = await pages(http, first.links["next"]["url"], "runs")
    found = [run["run_id"] for run in (*first.json()["runs"], *rest)]
    assert found == sorted({run.run_id for run in await delegating.runs(stack, key)})
    await delegating.have(stack, key, RunState.ENDED, 4)


# Approvals -----------------------------------------------------------------------------------


async def test_a_person_approves_with_other_arguments(
    stack: Stack, http: httpx2.AsyncClient
) -> None:
    key = fresh_key("approve")
    sent = await stack.client.send(key, call("write", path="a.txt", content="theirs"))
    (waiting,) = await pending(stack, key)
    listed = (await get(http, "/v1/approvals", session_key=key))["approvals"]
    path = f"/v1/approvals/{waiting.id}"
    read = await http.get(path)
    assert listed == [read.json()]
    body = {"reason": "ours", "arguments": {"path": "a.txt", "content": "ours"}}
    headers = {"If-Match": read.headers["etag"]}
    decided = await http.post(f"{path}/approve", json=body, headers=headers)
    assert (decided.status_code, decided.json()["state"]) == (200, "approved")
    await stack.client.wait(key, sent.message_id, timeout=60)
    assert (policed.workspace(stack, key).root / "a.txt").read_text() == "ours"
    assert (await http.post(f"{path}/approve", json=body)).json() == decided.json()
    other = await http.post(f"{path}/deny", json={"reason": "no"})
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    stale = await http.post(f"{path}/deny", json={"reason": "no"}, headers=headers)
    assert (stale.status_code, stale.json()["code"]) == (412, "conflict")
    assert (await get(http, "/v1/approvals", session_key=key))["total"] == 0
    assert (await get(http, "/v1/approvals", session_key=key, state="all"))["total"] == 1


async def test_a_person_denies_and_the_model_reads_why(
    stack: Stack, http: httpx2.AsyncClient
) -> None:
    key = fresh_key("deny")
    sent = await stack.client.send(key, call("write", path="a.txt", content="x"))
    (waiting,) = await pending(stack, key)
    body = {"reason": "Not on a Friday."}
    denied = await http.post(f"/v1/approvals/{waiting.id}/deny", json=body)
    assert (denied.json()["state"], denied.json()["decided_by"]) == ("denied", "user")
    await stack.client.wait(key, sent.message_id, timeout=60)
    assert "Not on a Friday." in (await policed.results(stack, key))[-1]


async def test_approvals_are_paged_while_more_are_asked_for(
    stack: Stack, http: httpx2.AsyncClient
) -> None:
    key = fresh_key("paged")
    writes = [call("write", path=f"{number}.txt", content="x") for number in range(3)]
    await stack.client.send(key, "\n".join(writes))
    asked = {one.id for one in await pending(stack, key, 3)}
    first = await http.get("/v1/approvals", params={"limit": 2})
    other = fresh_key("another")
    await stack.client.send(other, call("write", path="x.txt", content="x"))
    await pending(stack, other)
    rest = await pages(http, first.links["next"]["url"], "approvals")
    found = [one["id"] for one in (*first.json()["approvals"], *rest)]
    assert len(found) == len(set(found))
    assert asked <= set(found)
    for one in (key, other):
        await stack.client.reset(one)


# Contexts ------------------------------------------------------------------------------------


async def test_schedules_are_paged_while_more_are_added(http: httpx2.AsyncClient) -> None:
    async def add(name: str) -> None:
        body = {"name": name, "session_key": "default:bob", "text": "/say x", "cron": "@yearly"}
        added = await http.post("/v1/schedules", json=body)
        assert added.status_code == 201, added.text

    for name in ("a", "c", "e"):
        await add(name)
    first = await http.get("/v1/schedules", params={"limit": 2})
    await add("b")
    await add("d")
    rest = await pages(http, first.links["next"]["url"], "schedules")
    found = [one["name"] for one in (*first.json()["schedules"], *rest)]
    assert found == ["a", "c", "d", "e"]


async def test_every_word_is_found_below_the_summary_that_stands_for_it(
    stack: Stack, http: httpx2.AsyncClient
) -> None:
    key = fresh_key("context")
    for number in range(3):
        await stack.client.ask(key, f"/say answer {number}", timeout=60)
    tree = await get(http, at(key, "/context"))
    assert (tree["messages"], tree["turn"]) == (6, 3)
    seen = await get(http, at(key, "/context/turns/2"))
    assert [message["text"] for message in seen["messages"]][-1] == "/say answer 1"
    hit = (await get(http, at(key, "/context/search"), q='"answer 0"'))["hits"][0]
    (message,) = (await get(http, at(key, f"/context/nodes/{hit['id']}/messages")))["messages"]
    assert "answer 0" in message["text"]
    for missing in ("/context/turns/9", "/context/nodes/sum_0", "/context/nodes/x/messages"):
        assert (await http.get(at(key, missing))).status_code == 404


async def test_search_finds_across_sessions_and_within_one(
    stack: Stack, http: httpx2.AsyncClient
) -> None:
    one, two = fresh_key("one"), fresh_key("two")
    for key in (one, two):
        await stack.client.ask(key, "/say zymurgy", timeout=60)
    everywhere = await get(http, "/v1/search", q="zymurgy", role="assistant")
    assert {hit["session_key"] for hit in everywhere["hits"]} == {one, two}
    within = await get(http, at(one, "/search"), q="zymurgy", limit=1)
    assert (within["total"], within["hits"][0]["session_key"]) == (2, one)


async def test_what_was_found_is_paged_while_more_is_said(
    stack: Stack, http: httpx2.AsyncClient
) -> None:
    key = fresh_key("found")
    for number in range(3):
        await stack.client.ask(key, f"/say quokka {number}", timeout=60)
    first = await http.get(at(key, "/search"), params={"q": "quokka", "limit": 2})
    await stack.client.ask(key, "/say quokka quokka quokka", timeout=60)
    rest = await pages(http, first.links["next"]["url"], "hits")
    assert sorted(hit["seq"] for hit in (*first.json()["hits"], *rest)) == [1, 2, 3, 4, 5, 6]


async def test_one_session_tells_another_once(stack: Stack, http: httpx2.AsyncClient) -> None:
    one, two = fresh_key("teller"), fresh_key("told")
    for key in (one, two):
        await stack.client.ask(key, "/say hello", timeout=60)
    body = {"to": two, "text": "/say heard", "mode": "wait", "timeout": 60}
    headers = {"Idempotency-Key": "news"}
    answer = (await http.post(at(one, "/tell"), json=body, headers=headers)).json()
    assert (answer["status"], answer["response"]) == ("replied", "heard")
    again = await http.post(at(one, "/tell"), json=body, headers=headers)
    assert again.status_code == 200
    assert (await get(http, at(two, "/messages")))["total"] == 4


# Memory --------------------------------------------------------------------------------------


async def test_a_memory_is_stored_once_found_pinned_and_forgotten(
    http: httpx2.AsyncClient,
) -> None:
    new = {"content": "Deploys go out on Tuesdays.", "key": "team/deploys", "tags": ["team"]}
    stored = await http.post("/v1/memory/entries", json=new)
    assert (stored.status_code, stored.json()["path"]) == (201, "memory/team/deploys")
    again = await http.post("/v1/memory/entries", json=new)
    assert (again.status_code, again.json()["new"]) == (200, False)
    found = (await get(http, "/v1/memory/search", q="deploys", tag="team"))["results"]
    assert [hit["id"] for hit in found] == [stored.json()["id"]]
    path = f"/v1/memory/entries/{quote('memory/team/deploys', safe='')}"
    assert (await get(http, path))["content"] == new["content"]
    assert (await http.put(f"{path}/pin")).json()["changed"] is True
    assert (await http.put(f"{path}/pin")).json()["changed"] is False
    assert (await get(http, "/v1/memory/stats"))["pinned"] == 1
    assert (await http.delete(f"{path}/pin")).json()["changed"] is True
    assert (await http.delete(path)).status_code == 204
    assert (await http.get(path)).status_code == 404


async def test_memories_are_paged_while_more_are_stored_and_exported_whole(
    http: httpx2.AsyncClient,
) -> None:
    async def remember(number: int) -> str:
        body = {"content": f"Fact number {number}.", "agent": "main", "tags": ["facts"]}
        return (await http.post("/v1/memory/entries", json=body)).json()["id"]

    known = [await remember(number) for number in range(5)]
    first = await http.get("/v1/memory/entries", params={"limit": 2, "tag": "facts"})
    later = await remember(5)
    rest = await pages(http, first.links["next"]["url"], "entries")
    found = [entry["id"] for entry in (*first.json()["entries"], *rest)]
    assert found == known[::-1]
    oldest = await pages(http, "/v1/memory/entries", "entries", limit=2, sort="oldest", tag="facts")
    assert [entry["id"] for entry in oldest] == [*known, later]
    exported = await http.get("/v1/memory/export", params={"tag": "facts"})
    assert exported.headers["content-type"].startswith("application/x-ndjson")
    assert [json.loads(line)["id"] for line in exported.text.splitlines()] == [*known, later]


async def test_a_secret_is_not_remembered(http: httpx2.AsyncClient) -> None:
    body = {"content": "The key is AKIAIOSFODNN7EXAMPLE."}
    refused = await http.post("/v1/memory/entries", json=body)
    assert (refused.status_code, refused.json()["code"]) == (403, "denied")


# Tags and pages ------------------------------------------------------------------------------


async def test_what_is_known_already_is_not_sent_again(
    stack: Stack, http: httpx2.AsyncClient
) -> None:
    key = fresh_key("etag")
    sent = await stack.client.ask(key, "/say one", timeout=60)
    for rest in ("", "/messages?limit=1", f"/turns/{sent.message_id}", "/context"):
        read = await http.get(at(key, rest))
        tag = read.headers["etag"]
        for known in (tag, f'"other", W/{tag}', "*"):
            same = await http.get(at(key, rest), headers={"If-None-Match": known})
            assert (same.status_code, same.content) == (304, b""), rest
            assert same.headers["etag"] == tag
            assert same.headers.get("link") == read.headers.get("link")
    before = (await http.get(at(key))).headers["etag"]
    await stack.client.ask(key, "/say two", timeout=60)
    after = await http.get(at(key), headers={"If-None-Match": before})
    assert (after.status_code, after.json()["turns"]) == (200, 2)


async def test_history_and_sessions_are_paged_while_they_grow(
    stack: Stack, http: httpx2.AsyncClient
) -> None:
    key = fresh_key("grow")
    for number in range(3):
        await stack.client.ask(key, f"/say {number}", timeout=60)
    first = await http.get(at(key, "/messages"), params={"limit": 2})
    sessions = await http.get("/v1/sessions", params={"limit": 1})
    await stack.client.ask(fresh_key("new"), "/say new", timeout=60)
    await stack.client.ask(key, "/say 3", timeout=60)
    rest = await pages(http, first.links["next"]["url"], "messages")
    seen = [message["seq"] for message in (*first.json()["messages"], *rest)]
    assert seen == [5, 6, 3, 4, 1, 2]
    others = await pages(http, sessions.links["next"]["url"], "sessions")
    listed = [one["session_key"] for one in (*sessions.json()["sessions"], *others)]
    assert len(listed) == len(set(listed))
    assert listed[0] == key


@pytest.mark.parametrize("cursor", ["x", "e30", "eyJvZiI6InJ1bnMiLCJpZCI6InIifQ", "é", "=" * 9])
async def test_a_cursor_of_another_list_is_refused(http: httpx2.AsyncClient, cursor: str) -> None:
    for path in ("/v1/sessions", "/v1/approvals", "/v1/tree", "/v1/memory/entries"):
        refused = await http.get(path, params={"cursor": cursor})
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_argument")


@pytest.mark.parametrize("wrong", ["", "a b", "x" * 256, "é"])
async def test_a_key_that_cannot_be_one_is_refused(http: httpx2.AsyncClient, wrong: str) -> None:
    headers = {"Idempotency-Key": wrong.encode()}
    for path in ("/v1/sessions/default:nobody/reset", "/v1/runs/run_x/kill"):
        refused = await http.post(path, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_argument")


async def test_the_same_reset_discards_nothing_that_was_said_since(
    stack: Stack, http: httpx2.AsyncClient
) -> None:
    key = fresh_key("reset")
    await stack.client.send(key, "/sleep 60")
    await stack.client.send(key, "/say never")
    headers = {"Idempotency-Key": "afresh"}
    first = await http.post(at(key, "/reset"), headers=headers)
    assert (first.status_code, first.json()) == (200, {"dropped": 1})
    sent = await stack.client.send(key, "/sleep 1\n---\n/say kept")
    again = await asyncio.gather(*(http.post(at(key, "/reset"), headers=headers) for _ in "ab"))
    assert [one.json() for one in again] == [{"dropped": 1}] * 2
    assert (await stack.client.wait(key, sent.message_id, timeout=60)).text == "kept"
