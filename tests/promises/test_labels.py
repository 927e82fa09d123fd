"""A session's label: what raises it, what is refused for it, and that it never falls.

Each test goes through `SessionClient`, a real Temporal server and a real worker.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.domain.errors import Denied
from perdure.domain.labels import Label
from perdure.domain.states import EventKind, TurnState
from perdure.workspace import Workspace
from tests.support.policed import (
    ALL_TOOLS,
    CONFIG,
    ask,
    audit,
    call,
    label,
    raises,
    refusal,
    results,
    workspace,
)
from tests.support.stack import Stack, fresh_key, running_stack, until

AGENTS = f"""
[agents.clerk]
tools = {ALL_TOOLS}
clearance = "INTERNAL"

[agents.outsourced]
model = "openai-chat:elsewhere"
tools = {ALL_TOOLS}

[agents.top]
tools = {ALL_TOOLS}
clearance = "RESTRICTED"

[models."openai-chat:*"]
clearance = "INTERNAL"

[limits]
tool_result_bytes = 4000
"""
NEEDLE = "profit-4711"


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("labels")
    async with running_stack(home, temporal_address, config=CONFIG + AGENTS) as running:
        yield running


def secret(stack: Stack, key: str) -> None:
    workspace(stack, key).write("finance/q3.md", NEEDLE)


async def test_reading_raises_the_label_which_never_falls(stack: Stack) -> None:
    key = fresh_key("raise")
    secret(stack, key)
    workspace(stack, key).write("open.md", "hello")
    workspace(stack, key).write("staff/list.md", "names")
    assert (await ask(stack, key, call("read", path="open.md"))).label is Label.PUBLIC
    assert (await ask(stack, key, call("read", path="staff/list.md"))).label is Label.INTERNAL
    assert (await ask(stack, key, call("read", path="finance/q3.md"))).label is Label.CONFIDENTIAL
    for path in ("open.md", "staff/list.md", "finance/q3.md"):
        assert (await ask(stack, key, call("read", path=path))).label is Label.CONFIDENTIAL
    assert await raises(stack, key) == [
        ("PUBLIC", "INTERNAL", "tool read"),
        ("INTERNAL", "CONFIDENTIAL", "tool read"),
    ]
    steps = [
        (one.label_before, one.label_after) for one in await audit(stack, key, "PRE_TOOL_CALL")
    ]
    assert steps[:3] == [
        ("PUBLIC", "PUBLIC"),
        ("PUBLIC", "INTERNAL"),
        ("INTERNAL", "CONFIDENTIAL"),
    ]


async def test_a_message_raises_the_session_that_takes_it(stack: Stack) -> None:
    key = fresh_key("message")
    assert (await ask(stack, key, "/say hi", label=Label.INTERNAL)).label is Label.INTERNAL
    assert (await ask(stack, key, "/say hi")).label is Label.INTERNAL
    assert await raises(stack, key) == [("PUBLIC", "INTERNAL", "message")]
    with pytest.raises(Denied):
        await ask(stack, key, "/say hi", label=Label.RESTRICTED)
    assert await label(stack, key) is Label.INTERNAL


@pytest.mark.parametrize("word", ["bogus", "PUBLIC", "RESTRICTED"])
async def test_a_level_in_a_result_is_a_word(stack: Stack, word: str) -> None:
    """Handed case: a tool result `{"label": "bogus"}` changes nothing."""
    key = fresh_key("bogus")
    assert (await ask(stack, key, call("bogus", label=word))).label is Label.PUBLIC
    secret(stack, key)
    await ask(stack, key, call("read", path="finance/q3.md"))
    assert (await ask(stack, key, call("bogus", label=word))).label is Label.CONFIDENTIAL
    assert len(await raises(stack, key)) == 1


async def test_a_declared_level_of_a_tool_raises(stack: Stack) -> None:
    key = fresh_key("declared")
    assert (await ask(stack, key, call("ledger"))).label is Label.CONFIDENTIAL
    assert await raises(stack, key) == [("PUBLIC", "CONFIDENTIAL", "tool ledger")]
    page = await stack.client.history(key)
    assert [message.label for message in page.messages if message.role == "tool"] == [
        Label.CONFIDENTIAL
    ]


async def test_what_would_raise_above_the_clearance_is_refused_and_not_read(stack: Stack) -> None:
    key = fresh_key("clerk")
    secret(stack, key)
    # A link tells its level only when it is followed.
    (workspace(stack, key).root / "alias.md").symlink_to("finance/q3.md")
    result = await ask(
        stack,
        key,
        call("read", path="finance/q3.md"),
        call("read", path="./staff/../finance//q3.md"),
        call("read", path="alias.md"),
        call("grep", pattern="profit"),
        call("ledger"),
        call("ls", path="finance"),
        agent="clerk",
    )
    told = await results(stack, key)
    assert [refusal(one)["code"] for one in told] == ["denied"] * 6
    assert all("INTERNAL" in refusal(one)["message"] for one in told)
    assert NEEDLE not in json.dumps(told)
    assert "ledger-row" not in json.dumps(told)
    assert (result.label, await raises(stack, key)) == (Label.PUBLIC, [])
    with pytest.raises(Denied):
        await ask(stack, key, "hi", label=Label.CONFIDENTIAL)


async def test_a_session_at_restricted_stays_there(stack: Stack) -> None:
    """Handed case: raised to RESTRICTED, then "raised" to PUBLIC: stays."""
    key = fresh_key("restricted")
    workspace(stack, key).write("open.md", "hello")
    assert (await ask(stack, key, call("vault"), agent="top")).label is Label.RESTRICTED
    again = await ask(stack, key, call("read", path="open.md"), call("bogus", label="PUBLIC"))
    assert again.label is Label.RESTRICTED
    await stack.client.close(key)
    assert (await ask(stack, key, "/say hi", label=Label.PUBLIC)).label is Label.RESTRICTED
    assert await raises(stack, key) == [("PUBLIC", "RESTRICTED", "tool vault")]


async def test_a_model_reads_nothing_above_its_clearance(stack: Stack) -> None:
    key = fresh_key("outsourced")
    result = await ask(stack, key, "hello", label=Label.CONFIDENTIAL, agent="outsourced")
    assert result.state is TurnState.FAILED
    assert result.error is not None
    assert result.error["code"] == "denied"
    assert "clearance is INTERNAL" in result.error["message"]
    entries = await audit(stack, key)
    assert [(one.hook, one.decision, one.decided_by) for one in entries] == [
        ("AGENT_INVOCATION", "BLOCK", "invariant:model-clearance"),
        ("SECRET_ACCESS", "ALLOW", "default"),
        ("PRE_CONTEXT_INJECTION", "BLOCK", "invariant:model-clearance"),
    ]


READS = {
    "read": [call("read", path="notes/plan.md")],
    "grep in a folder": [call("grep", pattern="profit")],
    "grep in the file": [call("grep", pattern="profit", path="notes/plan.md")],
    "ls of its folder": [call("ls", path="notes")],
    "ls of all": [call("ls")],
    "a path with detours": [call("read", path="a/.././notes//plan.md")],
    "a link": [call("read", path="link.md")],
    "a linked folder": [call("read", path="folder/plan.md")],
    "an edit": [call("edit", path="notes/plan.md", old="profit", new="loss")],
}


@pytest.mark.parametrize("how", READS)
async def test_what_a_session_wrote_raises_it_again_after_a_reset(stack: Stack, how: str) -> None:
    key = fresh_key("written")
    secret(stack, key)
    await ask(
        stack,
        key,
        call("read", path="finance/q3.md"),
        "---",
        call("write", path="notes/plan.md", content=NEEDLE),
    )
    root = workspace(stack, key).root
    (root / "link.md").symlink_to("notes/plan.md")
    (root / "folder").symlink_to("notes")
    (root / "a").mkdir()
    await stack.client.reset(key)
    assert await label(stack, key) is Label.PUBLIC
    assert (await ask(stack, key, "/say hi")).label is Label.PUBLIC
    assert (await ask(stack, key, *READS[how])).label is Label.CONFIDENTIAL
    assert '"error"' not in (await results(stack, key))[-1]


async def test_what_is_written_through_a_link_is_labelled_where_it_lies(stack: Stack) -> None:
    key = fresh_key("through")
    root = workspace(stack, key).root
    workspace(stack, key).write("real/a.md", "old")
    workspace(stack, key).write("real/b.md", "old")
    (root / "link").symlink_to("real")
    (root / "alias.md").symlink_to("real/b.md")
    await ask(
        stack,
        key,
        call("ledger"),
        "---",
        call("write", path="link/a.md", content=NEEDLE),
        call("edit", path="alias.md", old="old", new=NEEDLE),
    )
    for path in ("real/a.md", "real/b.md"):
        await stack.client.reset(key)
        assert (await ask(stack, key, call("read", path=path))).label is Label.CONFIDENTIAL


async def test_a_kept_result_keeps_its_level(stack: Stack) -> None:
    """The whole of a long result lies in the workspace."""
    key = fresh_key("kept")
    workspace(stack, key).write("finance/long.md", f"{NEEDLE}\n" * 800)
    await ask(stack, key, call("ledger"), "---", call("tell", text=NEEDLE, times=1000))
    (kept,) = (workspace(stack, key).root / "tool-results").iterdir()
    await stack.client.reset(key)
    result = await ask(stack, key, call("read", path=f"tool-results/{kept.name}"))
    assert result.label is Label.CONFIDENTIAL
    await stack.client.reset(key)
    assert (await ask(stack, key, call("grep", pattern=NEEDLE))).label is Label.CONFIDENTIAL


@pytest.mark.parametrize("path", ["finance/q3.md", "alias.md"])
async def test_an_error_about_a_file_tells_of_it_too(stack: Stack, path: str) -> None:
    """`old` occurs twice, or not at all: nobody may ask that for nothing."""
    key = fresh_key("oracle")
    secret(stack, key)
    (workspace(stack, key).root / "alias.md").symlink_to("finance/q3.md")
    asked = call("edit", path=path, old="profit-5", new="loss")
    result = await ask(stack, key, asked)
    assert refusal((await results(stack, key))[0])["code"] == "not_found"
    assert result.label is Label.CONFIDENTIAL
    # Whose clearance does not allow that is refused before.
    key = fresh_key("oracle-clerk")
    secret(stack, key)
    (workspace(stack, key).root / "alias.md").symlink_to("finance/q3.md")
    await ask(stack, key, call("edit", path=path, old="profit", new="loss"), agent="clerk")
    assert refusal((await results(stack, key))[0])["code"] == "denied"
    assert workspace(stack, key).read("finance/q3.md").content == NEEDLE


@pytest.mark.parametrize("then", ["", "refuse", "raise"])
async def test_what_a_user_tool_may_have_written_keeps_the_level(stack: Stack, then: str) -> None:
    key = fresh_key("scribble")
    await ask(
        stack,
        key,
        call("ledger"),
        "---",
        call("scribble", name="deep/note.md", text=NEEDLE, then=then),
    )
    await stack.client.reset(key)
    assert (await ask(stack, key, call("read", path="deep/note.md"))).label is Label.CONFIDENTIAL


async def test_what_a_killed_tool_wrote_keeps_the_level(
    temporal_address: str, tmp_path: Path
) -> None:
    """Its process died between the write and the report."""
    async with running_stack(tmp_path, temporal_address, config=CONFIG) as stack:
        key = fresh_key("killed")
        script = [call("ledger"), "---", call("scribble", name="n.md", text=NEEDLE, seconds=600)]
        ticket = await stack.client.send(key, "\n".join(script))
        place = workspace(stack, key).root / "n.md"

        async def written() -> bool:
            return place.exists() and NEEDLE in place.read_text()

        await until(written)
        stack.worker.kill()
        stack.worker.start()
        await stack.client.wait(key, ticket.message_id, timeout=60)
        assert "Unknown outcome" in (await results(stack, key))[-1]
        await stack.client.reset(key)
        assert (await ask(stack, key, call("read", path="n.md"))).label is Label.CONFIDENTIAL


async def test_the_session_knows_its_label_and_a_hidden_one_is_not_there(stack: Stack) -> None:
    key, other = fresh_key("me"), fresh_key("other")
    await ask(stack, other, "/say hi", label=Label.CONFIDENTIAL)
    await ask(
        stack,
        key,
        call("session_status"),
        call("session_status", session_key=other),
        call("session_status", session_key=fresh_key("nobody")),
        call("session_status", caller_session_key=other),
    )
    mine, hidden, missing, extra = await results(stack, key)
    assert json.loads(mine)["label"] == "PUBLIC"
    assert json.loads(mine)["clearance"] == "CONFIDENTIAL"
    assert hidden == missing
    assert refusal(extra)["code"] == "invalid_argument"
    assert "caller_session_key" in refusal(extra)["message"]
    assert await label(stack, key) is Label.PUBLIC


async def test_history_shows_no_words_above_the_level_of_the_gateway(
    temporal_address: str, tmp_path: Path
) -> None:
    config = '[gateway]\nlevel = "PUBLIC"\n[workspace.labels]\n"secret/**" = "CONFIDENTIAL"\n'
    async with running_stack(tmp_path, temporal_address, config=config) as stack:
        key = fresh_key("above")
        Workspace.for_session(stack.home, key).write("secret/plan.md", "the needle in the plan")
        await stack.client.ask(key, '/read {"path": "secret/plan.md"}\n/say done', timeout=60)
        page = await stack.client.history(key, limit=50)
    assert "needle" not in page.model_dump_json()
    assert [message.text for message in page.messages if message.label is Label.CONFIDENTIAL] == [
        "[withheld: this message is CONFIDENTIAL]"
    ] * 2


async def test_a_reset_starts_at_public_and_records_what_it_follows(
    temporal_address: str, tmp_path: Path
) -> None:
    async with running_stack(tmp_path, temporal_address) as stack:
        key = fresh_key("lineage")
        await stack.client.ask(key, "/say one", label=Label.CONFIDENTIAL, timeout=60)
        before = await stack.client.history(key)
        await stack.client.reset(key)
        assert (await stack.client.status(key)).label is Label.PUBLIC
        events = await stack.client.store.outbox.page(key)
    (reset,) = [event.payload for event in events if event.kind is EventKind.SESSION_RESET]
    assert (reset["follows"], reset["epoch"], reset["label_before"]) == (0, 1, "CONFIDENTIAL")
    assert reset["after_seq"] == before.messages[-1].seq
