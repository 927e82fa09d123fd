"""Approvals on the command line: a call is shown, a person decides once, the turn goes on."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from gateway.live import ApprovalAsked, ApprovalSettled, LiveSession, TurnEnded
from perdure.domain.approvals import ApprovalState
from perdure.domain.states import TurnState
from perdure.workspace import Workspace
from tests.support.stack import ROOT, Stack, fresh_key, running_stack, until

CONFIG = """
[[policy.rules]]
id = "ask-before-writing"
hook = "PRE_TOOL_CALL"
priority = 10
when = [{ field = "tool", op = "equals", value = "write" }]
action = "REQUIRE_APPROVAL"
message = "A person reads what is written."
"""
WRITE = '/write {"path": "note.txt", "content": "as asked"}\n---\n/say the end'


class Ran(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Awaitable[Ran]]


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("approvals")
    async with running_stack(home, temporal_address, config=CONFIG) as running:
        yield running


@pytest.fixture
def cli(stack: Stack) -> Cli:
    """`perdure` in a process of its own, on the running stack."""

    async def run(*arguments: str) -> Ran:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gateway.cli", *arguments, "--home", str(stack.home)),
            cwd=ROOT,
            env=os.environ | stack.environ,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return Ran(process.returncode or 0, out.decode(), err.decode())

    return run


@asynccontextmanager
async def waiting(stack: Stack, cli: Cli, key: str) -> AsyncIterator[tuple[str, asyncio.Task[Ran]]]:
    """An `ask` whose call waits for a person: the approval's id, and what the ask comes to."""
    asking = asyncio.create_task(cli("ask", key, WRITE))

    async def asked() -> bool:
        assert not asking.done(), asking.result()
        return (await stack.client.approvals(session_key=key)).total == 1

    await until(asked)
    page = await stack.client.approvals(session_key=key)
    yield page.approvals[0].id, asking


def note_of(stack: Stack, key: str) -> str:
    """What the tool has written."""
    return (Workspace.for_session(stack.home, key).root / "note.txt").read_text()


async def test_a_call_is_listed_and_approved_and_ask_tells_once_that_it_waits(
    stack: Stack, cli: Cli
) -> None:
    key = fresh_key("approve")
    async with waiting(stack, cli, key) as (approval_id, asking):
        shown = await cli("approvals", "--session", key)
        assert shown.code == 0, shown
        for part in (
            f'{approval_id}  write path=note.txt content="as asked"',
            f"{key} · turn 1 · asked for by rule:ask-before-writing · expires in 23 h",
            "A person reads what is written.",
        ):
            assert part in shown.out
        listed = json.loads((await cli("approvals", "list", "--json", "--session", key)).out)
        assert listed["total"] == 1
        assert listed["approvals"][0]["id"] == approval_id

        # Whoever begins to wait now is told as well.
        late = asyncio.create_task(cli("ask", key, "/say later"))
        decided = await cli("approvals", "approve", approval_id, "--by", "kim", "--reason", "fine")
        assert decided == Ran(0, f"{approval_id} is approved by kim; {key} goes on.\n", "")
        told = f"write waits for approval: perdure approvals approve|deny {approval_id}\n"
        assert await asking == Ran(0, "the end\n", told)
        await late
    assert note_of(stack, key) == "as asked"

    again = await cli("approvals", "deny", approval_id)
    assert again.code == 4
    assert "is approved by kim; a decision is final" in again.err
    none = await cli("approvals", "--session", key)
    assert none.out == f"No call of {key} is waiting for a person.\n"


async def test_a_denied_call_does_not_run_and_the_list_says_who_and_why(
    stack: Stack, cli: Cli
) -> None:
    key = fresh_key("deny")
    async with waiting(stack, cli, key) as (approval_id, asking):
        options = ("--by", "kim", "--reason", "not today", "--json")
        decided = json.loads((await cli("approvals", "deny", approval_id, *options)).out)
        assert (decided["state"], decided["decided_by"]) == ("denied", "kim")
        assert (await asking).code == 0
    assert not (Workspace.for_session(stack.home, key).root / "note.txt").exists()
    (result,) = [
        message.text
        for message in (await stack.client.history(key)).messages
        if message.role == "tool"
    ]
    assert "kim denied the approval: not today" in result
    every = await cli("approvals", "--all", "--session", key)
    assert re.search(r"denied by kim \d+ s ago: not today", every.out)


async def test_a_call_may_be_approved_with_other_arguments(stack: Stack, cli: Cli) -> None:
    key = fresh_key("change")
    other = json.dumps({"path": "note.txt", "content": "as changed"})
    async with waiting(stack, cli, key) as (approval_id, asking):
        for wrong in ("{", "[1]"):
            refused = await cli("approvals", "approve", approval_id, "--arguments", wrong)
            assert (refused.code, "JSON" in refused.err) == (2, True)
        decided = await cli("approvals", "approve", approval_id, "--arguments", other)
        assert "with other arguments" in decided.out, decided
        assert (await asking).code == 0
    assert note_of(stack, key) == "as changed"
    every = await cli("approvals", "--all", "--session", key)
    assert 'approved with other arguments: path=note.txt content="as changed"' in every.out


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("approve", "apr_none"), 3, "There is no approval apr_none"),
        (("approve",), 2, "Missing argument 'ID'"),
        (("--all", "approve", "apr_none"), 2, "unexpected extra argument"),
        (("deny", "apr_none", "--arguments", "{}"), 2, "No such option"),
    ],
)
async def test_what_cannot_be_decided_is_refused(
    cli: Cli, arguments: tuple[str, ...], code: int, told: str
) -> None:
    ran = await cli("approvals", *arguments)
    assert ran.code == code, ran
    assert told in ran.err


async def test_whoever_watches_a_turn_sees_it_wait_and_go_on(stack: Stack) -> None:
    key = fresh_key("live")
    found: list[Any] = []
    async with LiveSession(stack.client.store, key, after=0) as live:
        await stack.client.send(key, WRITE)
        async with asyncio.timeout(60):
            async for item in live:
                found.append(item)
                if isinstance(item, ApprovalAsked):
                    assert item.tool == "write"
                    await stack.client.decide(item.approval_id, approve=True, by="kim")
                if isinstance(item, TurnEnded):
                    break
    asked, settled = (item for item in found if isinstance(item, ApprovalAsked | ApprovalSettled))
    assert (settled.approval_id, settled.state) == (asked.approval_id, ApprovalState.APPROVED)
    assert item.result.state is TurnState.COMPLETED
