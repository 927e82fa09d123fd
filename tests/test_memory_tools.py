"""The memory tools as a model calls them: in sessions, under labels, with a person's word where
something is to be forgotten.

Each test goes through `SessionClient`, a real Temporal server and a real worker. Words stand in
for meaning (the hashing embedder).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure.domain.labels import Label
from perdure.domain.memory import Trust
from perdure.tools import BUILTIN, groups, select
from tests.support.policed import ask, call, label, pending, refusal, results
from tests.support.stack import Stack, fresh_key, running_stack, until

CONFIG = """
default_agent = "main"

[agents.main]
tools = ["memory", "files", "policy"]
memory_auto = true

[agents.keeper]
tools = ["memory", "memory_admin", "policy"]

[agents.other]
tools = ["memory"]

[memory]
embedder = "hashing"

[workspace.labels]
"memory/plans.md" = "INTERNAL"
"""


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("memory")
    async with running_stack(home, temporal_address, config=CONFIG) as running:
        yield running


@pytest.fixture
def tenant() -> str:
    """A tenant of its own: memory is shared within one."""
    return f"tenant{time.time_ns()}"


def key_of(tenant: str, user: str = "me") -> str:
    return fresh_key(user).replace("default:", f"{tenant}:")


async def tool(
    stack: Stack, session: str, name: str, at: Label = Label.PUBLIC, /, **args: Any
) -> Any:
    """The result of one call, as a model reads it."""
    line = f"/{name} {json.dumps(args)}"
    await ask(stack, session, line, "/say done", label=at)
    return json.loads((await results(stack, session))[-1])


# Contracts


def test_looking_after_memory_is_no_part_of_having_one() -> None:
    assert groups()["memory"] == ("memory_store", "memory_search", "memory_get")
    assert groups()["memory_admin"] == ("memory_manage",)
    assert "memory_manage" not in select(["memory"]).specs
    assert "memory_manage" in select(["memory", "memory_admin"]).specs
    asks = BUILTIN["memory_manage"].asks
    assert [asks({"manage_action": action}) for action in ("delete", "flush", "browse")] == [
        True,
        True,
        False,
    ]


async def test_what_is_stored_in_one_session_is_found_in_another(stack: Stack, tenant: str) -> None:
    first, second = key_of(tenant), key_of(tenant, "you")
    stored = await tool(
        stack, first, "memory_store", content="The build server is called Hermes.", tags=["ci"]
    )
    assert stored["stored"] is True
    assert set(stored) == {"stored", "id", "path"}
    again = await tool(stack, second, "memory_store", content="The build server is called Hermes.")
    assert again["id"] == stored["id"]
    found = await tool(stack, second, "memory_search", query="build server")
    assert set(found) == {"results", "total", "note"}
    (hit,) = found["results"]
    assert set(hit) == {
        *("id", "path", "preview", "score", "tags", "memory_type"),
        *("trust", "label", "created_at"),
    }
    assert (hit["id"], hit["tags"], hit["trust"]) == (stored["id"], ["ci"], "learned")
    lines = await tool(stack, second, "memory_get", path=stored["path"])
    assert lines == {
        "path": stored["path"],
        "start_line": 1,
        "end_line": 1,
        "total_lines": 1,
        "content": "The build server is called Hermes.",
    }
    entry = await stack.client.memory.get(stack.client.memory.view(tenant), stored["id"])
    assert entry.session_key == first
    assert entry.message_ids != ()


async def test_another_agent_and_another_tenant_see_nothing_of_it(
    stack: Stack, tenant: str
) -> None:
    await tool(stack, key_of(tenant), "memory_store", content="A walrus on the pier.")
    for key, agent in ((key_of(tenant), "other"), (key_of(f"{tenant}b"), "main")):
        await ask(stack, key, call("memory_search", query="walrus"), "/say done", agent=agent)
        assert json.loads((await results(stack, key))[-1])["total"] == 0


async def test_a_secret_is_denied_and_the_model_reads_which_kind_and_where(
    stack: Stack, tenant: str
) -> None:
    key = key_of(tenant)
    told = await tool(stack, key, "memory_store", content="My password: hunter2xyz!")
    assert told["error"]["code"] == "denied"
    assert "content holds a named-secret" in told["error"]["message"]
    assert "hunter2" not in json.dumps(told)
    assert (await stack.client.memory.stats(stack.client.memory.view(tenant))).entries == 0


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("memory_store", {"content": ""}),
        ("memory_store", {"content": "x", "label": "PUBLIC"}),
        ("memory_store", {"content": "x", "memory_type": "dream"}),
        ("memory_search", {"query": "x", "limit": 51}),
        ("memory_search", {"query": "  "}),
        ("memory_get", {"path": "memory/x", "start_line": 5, "end_line": 2}),
    ],
)
async def test_wrong_arguments_are_told(
    stack: Stack, tenant: str, name: str, args: dict[str, Any]
) -> None:
    told = await tool(stack, key_of(tenant), name, **args)
    assert told["error"]["code"] == "invalid_argument"


# Labels


async def test_what_a_confidential_session_stored_is_not_there_for_a_public_one(
    stack: Stack, tenant: str
) -> None:
    high, low = key_of(tenant, "high"), key_of(tenant, "low")
    await tool(stack, low, "memory_store", content="The merger talk is gossip.")
    before = await tool(stack, low, "memory_search", query="merger")
    stored = await tool(
        stack,
        high,
        "memory_store",
        Label.CONFIDENTIAL,
        content="The merger closes in May.",
        key="deals/merger",
    )
    assert await tool(stack, low, "memory_search", query="merger") == before
    hidden = await tool(stack, low, "memory_get", path=stored["path"])
    missing = await tool(stack, low, "memory_get", path="memory/deals/nothing")
    assert json.dumps(hidden).replace("merger", "nothing") == json.dumps(missing)
    assert (await tool(stack, high, "memory_search", query="merger"))["total"] == 2
    # To read below is no rise, and to have read it all keeps its level.
    assert await label(stack, low) is Label.PUBLIC
    assert await label(stack, high) is Label.CONFIDENTIAL


# Memory files


async def test_memory_files_of_the_workspace_are_found_and_read(stack: Stack, tenant: str) -> None:
    key = key_of(tenant)
    text = "# Who\nThe architect is Imhotep.\n\n# Where\nThe site is Saqqara."
    found = await _after_writing(stack, key, "MEMORY.md", text, "Imhotep")
    assert [hit["path"] for hit in found["results"]] == ["MEMORY.md"]
    lines = await tool(stack, key, "memory_get", path="MEMORY.md", start_line=2, end_line=2)
    assert lines["content"].strip() == "The architect is Imhotep."
    found = await _after_writing(stack, key, "MEMORY.md", "The architect is Senenmut.", "Imhotep")
    assert "Imhotep" not in json.dumps(found)
    # Another session has a workspace of its own.
    assert (await tool(stack, key_of(tenant), "memory_search", query="Senenmut"))["total"] == 0


async def test_a_memory_file_above_the_session_is_hidden_and_reading_it_raises(
    stack: Stack, tenant: str
) -> None:
    key = key_of(tenant)
    found = await _after_writing(stack, key, "memory/plans.md", "We buy Acme.", "Acme")
    # To write it has raised nothing yet; what lies there is INTERNAL by the settings.
    if await label(stack, key) is Label.PUBLIC:
        assert found["total"] == 0
    await tool(stack, key, "memory_get", path="memory/plans.md")
    assert await label(stack, key) is Label.INTERNAL
    assert (await tool(stack, key, "memory_search", query="Acme"))["total"] == 1


async def _after_writing(stack: Stack, key: str, path: str, text: str, query: str) -> Any:
    await ask(
        stack,
        key,
        call("write", path=path, content=text),
        "---",
        call("memory_search", query=query),
        "/say done",
    )
    return json.loads((await results(stack, key))[-1])


# Looking after it


async def _keeper(stack: Stack, tenant: str, count: int = 4) -> tuple[str, list[str]]:
    """A session that looks after a memory with some entries, and their ids."""
    key = key_of(tenant, "keeper")
    lines = [call("memory_store", content=f"fact {n} of this tenant") for n in range(count)]
    await ask(stack, key, *lines, "/say done", agent="keeper")
    return key, [json.loads(text)["id"] for text in await results(stack, key)]


async def test_delete_without_approval_changes_nothing_and_with_it_exactly_the_ids_named(
    stack: Stack, tenant: str
) -> None:
    key, ids = await _keeper(stack, tenant)
    people = stack.client.memory
    for approve in (False, True):
        line = call("memory_manage", manage_action="delete", ids=ids[:2])
        ticket = await stack.client.send(key, f"{line}\n/say done")
        (asked,) = await pending(stack, key)
        assert asked.tool == "memory_manage"
        assert asked.asked_by == "tool:memory_manage"
        assert (await people.stats(people.view(tenant))).entries == 4
        await stack.client.decide(asked.id, approve=approve, by="ada", reason="as agreed")
        await stack.client.wait(key, ticket.message_id, timeout=60)
        told = json.loads((await results(stack, key))[-1])
        if approve:
            assert told["matched"] == told["changed"] == 2
            assert set(told["ids"]) == set(ids[:2])
        else:
            assert told["error"]["code"] == "denied"
            assert (await people.stats(people.view(tenant))).entries == 4
    left = {entry.id for entry in (await people.browse(people.view(tenant))).entries}
    assert left == set(ids[2:])


async def test_flush_waits_for_a_person_who_may_narrow_it(stack: Stack, tenant: str) -> None:
    key, ids = await _keeper(stack, tenant)
    ticket = await stack.client.send(key, f"{call('memory_manage', manage_action='flush')}\n/say x")
    (asked,) = await pending(stack, key)
    narrowed = json.dumps({"manage_action": "delete", "id": ids[0]})
    await stack.client.decide(asked.id, approve=True, by="ada", arguments=narrowed)
    await stack.client.wait(key, ticket.message_id, timeout=60)
    told = json.loads((await results(stack, key))[-1])
    assert (told["action"], told["ids"]) == ("delete", [ids[0]])


async def test_figures_pages_and_pins_need_nobody(stack: Stack, tenant: str) -> None:
    key, ids = await _keeper(stack, tenant)
    stats = await tool(stack, key, "memory_manage", manage_action="stats")
    assert (stats["matched"], stats["stats"]["by_agent"]) == (4, {"keeper": 4})
    pins = await tool(stack, key, "memory_manage", manage_action="pin", ids=[ids[0]], id=ids[1])
    assert (pins["matched"], pins["changed"]) == (2, 2)
    page = await tool(stack, key, "memory_manage", manage_action="browse", limit=2, sort="oldest")
    assert (page["matched"], len(page["entries"])) == (4, 2)
    none = await tool(stack, key, "memory_manage", manage_action="unpin", id="mem_none")
    assert (none["matched"], none["changed"]) == (0, 0)
    foreign = await tool(stack, key, "memory_manage", manage_action="stats", tenant_id="another")
    assert foreign["error"]["code"] == "denied"
    unnamed = await tool(stack, key, "memory_manage", manage_action="pin")
    assert unnamed["error"]["code"] == "invalid_argument"


async def test_a_simulated_delete_says_that_a_person_is_asked(stack: Stack, tenant: str) -> None:
    key, ids = await _keeper(stack, tenant, 1)
    told = await tool(
        stack,
        key,
        "simulate_tool_call",
        tool_name="memory_manage",
        args={"manage_action": "delete", "ids": ids},
    )
    assert (told["decision"], told["decided_by"]) == ("REQUIRE_APPROVAL", "tool:memory_manage")
    assert (await stack.client.approvals(session_key=key)).total == 0


async def test_an_agent_that_is_not_given_it_has_no_such_tool(stack: Stack, tenant: str) -> None:
    key = key_of(tenant)
    await ask(stack, key, '/memory_manage {"manage_action": "stats"}', "/say done")
    found = await results(stack, key)
    assert not found or refusal(found[-1])["code"] == "invalid_argument"


# Upkeep and embedding anew


async def test_a_schedule_tends_the_memory_and_a_workflow_embeds_it_anew(
    stack: Stack, tenant: str
) -> None:
    await _keeper(stack, tenant)
    queue = stack.settings.temporal.queue
    schedule = stack.client.temporal.get_schedule_handle(f"perdure-memory/{queue}")
    await schedule.trigger()

    async def tended() -> bool:
        return (await schedule.describe()).info.num_actions > 0

    await until(tended)
    workflow_id = await stack.client.memory.reindex(tenant)
    handle = stack.client.temporal.get_workflow_handle(workflow_id)
    assert await asyncio.wait_for(handle.result(), 60) == {"done": 4, "total": 4}


# People


async def test_people_vouch_for_what_they_store(stack: Stack, tenant: str) -> None:
    from perdure.domain.memory import NewEntry

    people = stack.client.memory
    stored = await people.store(
        NewEntry(tenant=tenant, agent="main", content="Answer in Dutch.", trust=Trust.SYSTEM)
    )
    found = await tool(stack, key_of(tenant), "memory_search", query="Dutch")
    assert [(hit["id"], hit["trust"]) for hit in found["results"]] == [(stored.id, "system")]
