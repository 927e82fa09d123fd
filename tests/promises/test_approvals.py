"""A person's word on one exact call: waited for however long, given once, and no one else's.

Each test goes through `SessionClient`, a real Temporal server and a real worker.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.domain.approvals import ApprovalState
from perdure.domain.errors import Conflict, InvalidArgument, NotFound
from perdure.domain.labels import Label
from perdure.domain.states import EventKind, SessionState, TurnState
from perdure.tools import BUILTIN
from tests.support.policed import (
    CONFIG,
    TIMEOUT,
    all_approvals,
    approval,
    ask,
    audit,
    call,
    delivered,
    events,
    pending,
    refusal,
    results,
    rule,
    workspace,
)
from tests.support.stack import Stack, fresh_key, running_stack, until

ASKS = rule(
    "ask-delete", "PRE_TOOL_CALL", "REQUIRE_APPROVAL", ("tool", "equals", "delete"), message="Sure?"
)
ASKS_BOARD = rule(
    "ask-board", "PRE_OUTPUT", "REQUIRE_APPROVAL", ("recipient", "in", ["chair", "team"])
)
NEVER_99 = rule("never-99", "PRE_TOOL_CALL", "BLOCK", ("args.ids.0", "equals", 99), priority=100)
RULES = ASKS + ASKS_BOARD + NEVER_99


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("approvals")
    async with running_stack(home, temporal_address, config=CONFIG + RULES) as running:
        yield running


def deleted(stack: Stack, key: str) -> list[str]:
    """What was deleted, by the tool's own account."""
    file = workspace(stack, key).root / "deleted.txt"
    return file.read_text().splitlines() if file.exists() else []


async def send(stack: Stack, key: str, *lines: str) -> str:
    return (await stack.client.send(key, "\n".join(lines))).message_id


async def ended(stack: Stack, key: str, message_id: str):  # type: ignore[no-untyped-def]
    return await stack.client.wait(key, message_id, timeout=TIMEOUT)


async def test_an_approved_call_runs_once_and_its_result_is_read(stack: Stack) -> None:
    key = fresh_key("approve")
    message = await send(stack, key, call("delete", ids=[1]), "/say {{1}}")
    (asked,) = await pending(stack, key)
    assert (asked.tool, json.loads(asked.arguments)) == ("delete", {"ids": [1]})
    assert (asked.asked_by, asked.reason) == ("rule:ask-delete", "Sure?")
    assert (await stack.client.status(key)).state is SessionState.WAITING
    assert deleted(stack, key) == []

    await stack.client.decide(asked.id, approve=True, by="ada", reason="fine")

    assert json.loads((await ended(stack, key, message)).text) == {"deleted": [1]}
    assert deleted(stack, key) == ["[1]"]
    kinds = [event.kind for event in await events(stack, key)]
    assert kinds.count(EventKind.APPROVAL_REQUESTED) == 1
    assert kinds.count(EventKind.APPROVAL_DECIDED) == 1
    assert kinds.index(EventKind.APPROVAL_DECIDED) < kinds.index(EventKind.TOOL_STARTED)


async def test_a_denial_tells_the_model_who_and_why(stack: Stack) -> None:
    key = fresh_key("deny")
    message = await send(stack, key, call("delete", ids=[1]), "/say {{1}}")
    (asked,) = await pending(stack, key)
    await stack.client.decide(asked.id, approve=False, by="ada", reason="too early")

    told = refusal((await ended(stack, key, message)).text)
    assert told["code"] == "denied"
    assert "ada" in told["message"]
    assert "too early" in told["message"]
    assert deleted(stack, key) == []


async def test_a_decision_is_final(stack: Stack) -> None:
    key = fresh_key("twice")
    message = await send(stack, key, call("delete", ids=[1]), "/say {{1}}")
    (asked,) = await pending(stack, key)
    both = await asyncio.gather(
        stack.client.decide(asked.id, approve=True, by="ada"),
        stack.client.decide(asked.id, approve=False, by="bob"),
        return_exceptions=True,
    )
    assert [type(one) for one in both].count(Conflict) == 1
    decided = await approval(stack, asked.id)
    await ended(stack, key, message)
    assert deleted(stack, key) == (["[1]"] if decided.state is ApprovalState.APPROVED else [])
    with pytest.raises(Conflict):
        await stack.client.decide(asked.id, approve=True, by="eve")
    with pytest.raises(NotFound):
        await stack.client.decide("apr_none", approve=True, by="eve")
    assert await approval(stack, asked.id) == decided


async def test_an_approval_lets_no_other_arguments_through(stack: Stack) -> None:
    """Handed case: approval of ids [1] does not let ids [1, 2] through."""
    key = fresh_key("exact")
    message = await send(stack, key, call("delete", ids=[1]), "---", call("delete", ids=[1, 2]))
    (first,) = await pending(stack, key)
    await stack.client.decide(first.id, approve=True, by="ada")

    async def asked_again() -> bool:
        return len(await all_approvals(stack, key)) == 2

    await until(asked_again)
    (second,) = await pending(stack, key)
    assert second.id != first.id
    assert second.digest != first.digest
    assert json.loads(second.arguments) == {"ids": [1, 2]}
    assert deleted(stack, key) == ["[1]"]
    await stack.client.decide(second.id, approve=False, by="ada")
    await ended(stack, key, message)
    assert deleted(stack, key) == ["[1]"]
    # The same arguments, in a later turn, are another call.
    message = await send(stack, key, call("delete", ids=[1]))
    (third,) = await pending(stack, key)
    await stack.client.decide(third.id, approve=False, by="ada")
    await ended(stack, key, message)
    assert deleted(stack, key) == ["[1]"]


async def test_changed_arguments_run_changed_and_are_recorded_as_changed(stack: Stack) -> None:
    key = fresh_key("changed")
    message = await send(stack, key, call("delete", ids=[1, 2, 3]), "/say {{1}}")
    (asked,) = await pending(stack, key)
    await stack.client.decide(
        asked.id, approve=True, by="ada", reason="only one", arguments='{"ids": [1]}'
    )
    assert json.loads((await ended(stack, key, message)).text) == {"deleted": [1]}
    assert deleted(stack, key) == ["[1]"]
    decided = await approval(stack, asked.id)
    assert json.loads(decided.arguments) == {"ids": [1, 2, 3]}
    assert json.loads(decided.changed or "") == {"ids": [1]}
    (event,) = await events(stack, key, EventKind.APPROVAL_DECIDED)
    assert event.payload["changed"] is True
    (entry,) = await audit(stack, key, "APPROVAL")
    assert json.loads(entry.arguments) == {"ids": [1]}
    assert (entry.decision, entry.decided_by) == ("approved", "person:ada")
    assert "changed" in entry.reason
    assert "only one" in entry.reason


async def test_changed_arguments_are_under_every_rule(stack: Stack) -> None:
    key = fresh_key("changed-rule")
    message = await send(stack, key, call("delete", ids=[1]), "/say {{1}}")
    (asked,) = await pending(stack, key)
    for wrong in ("[1]", "nonsense"):
        with pytest.raises(InvalidArgument):
            await stack.client.decide(asked.id, approve=True, by="ada", arguments=wrong)
    await stack.client.decide(asked.id, approve=True, by="ada", arguments='{"ids": [99]}')
    assert "never-99" in refusal((await ended(stack, key, message)).text)["message"]
    assert deleted(stack, key) == []


async def test_two_calls_of_one_step_wait_for_a_decision_each(stack: Stack) -> None:
    key = fresh_key("two")
    message = await send(stack, key, call("delete", ids=[1]), call("delete", ids=[2]), "/say ok")
    one, two = await pending(stack, key, 2)
    await stack.client.decide(one.id, approve=True, by="ada")

    async def first_ran() -> bool:
        return deleted(stack, key) == ["[1]"]

    await until(first_ran)
    await asyncio.sleep(0.5)
    assert await all_approvals(stack, key) == [ApprovalState.APPROVED, ApprovalState.PENDING]
    assert len(await results(stack, key)) == 1
    assert (await stack.client.status(key)).state is SessionState.WAITING
    await stack.client.decide(two.id, approve=False, by="ada", reason="not this")
    assert (await ended(stack, key, message)).text == "ok"
    first, second = await results(stack, key)
    assert json.loads(first) == {"deleted": [1]}
    assert "not this" in second
    assert deleted(stack, key) == ["[1]"]


@pytest.mark.parametrize("how", ["interrupt", "reset"])
async def test_what_is_stopped_is_withdrawn(stack: Stack, how: str) -> None:
    key = fresh_key(how)
    message = await send(stack, key, call("delete", ids=[1]))
    (asked,) = await pending(stack, key)
    await (stack.client.interrupt(key) if how == "interrupt" else stack.client.reset(key))
    assert (await ended(stack, key, message)).state is TurnState.INTERRUPTED
    assert (await approval(stack, asked.id)).state is ApprovalState.WITHDRAWN
    with pytest.raises(Conflict):
        await stack.client.decide(asked.id, approve=True, by="ada")
    assert (await ask(stack, key, "/say on")).text == "on"
    assert deleted(stack, key) == []


async def test_no_tool_can_decide(stack: Stack) -> None:
    """Nor by naming one, nor by its arguments."""
    assert not {"decide", "approve", "approvals", "approval_decided"} & set(BUILTIN)
    key = fresh_key("tool")
    message = await send(
        stack,
        key,
        call("approve", approval_id="apr_1"),
        call("delete", ids=[1], approved=True),
        call("delete", ids=[2]),
        "/say done",
    )
    asked = await pending(stack, key, 2)
    for one in asked:
        await stack.client.decide(one.id, approve=one.call == 1, by="ada")
    assert (await ended(stack, key, message)).text == "done"
    unknown, extra, denied = await results(stack, key)
    assert refusal(unknown)["code"] == "invalid_argument"
    assert refusal(extra)["code"] == "invalid_argument"
    assert refusal(denied)["code"] == "denied"
    assert deleted(stack, key) == []


async def test_an_approval_undoes_no_invariant(stack: Stack) -> None:
    """What was asked for at PUBLIC is refused once the session has read what is CONFIDENTIAL."""
    key = fresh_key("risen")
    workspace(stack, key).write("finance/q3.md", "profit")
    message = await send(
        stack,
        key,
        call("message", channel="staff", recipient="team", text="risen-needle"),
        call("read", path="finance/q3.md"),
        "/say {{1}}",
    )
    (asked,) = await pending(stack, key)
    await until(lambda: _is(stack, key, Label.CONFIDENTIAL))
    await stack.client.decide(asked.id, approve=True, by="ada")
    told = refusal((await ended(stack, key, message)).text)
    assert told["code"] == "denied"
    assert "CONFIDENTIAL" in told["message"]
    assert "risen-needle" not in delivered(stack, "staff")


async def _is(stack: Stack, key: str, label: Label) -> bool:
    return (await stack.client.status(key)).label is label


async def test_an_approved_message_leaves_once(stack: Stack) -> None:
    key = fresh_key("output")
    message = await send(
        stack, key, call("message", channel="board", recipient="chair", text="approved-needle")
    )
    (asked,) = await pending(stack, key)
    assert asked.asked_by == "rule:ask-board"
    assert "approved-needle" not in delivered(stack, "board")
    await stack.client.decide(asked.id, approve=True, by="ada")
    assert (await ended(stack, key, message)).state is TurnState.COMPLETED
    assert delivered(stack, "board").count("approved-needle") == 1


async def test_what_nobody_decides_in_time_is_denied(temporal_address: str, tmp_path: Path) -> None:
    config = f"{CONFIG}\n[policy]\napproval_timeout = 2\n{RULES}"
    async with running_stack(tmp_path, temporal_address, config=config) as stack:
        key = fresh_key("late")
        result = await ask(stack, key, call("delete", ids=[1]), "/sleep 1", "/say {{1}}")
        assert refusal(result.text)["code"] == "denied"
        assert "in time" in refusal(result.text)["message"]
        assert deleted(stack, key) == []
        assert await all_approvals(stack, key) == [ApprovalState.EXPIRED]
        (found,) = (await stack.client.approvals(session_key=key, state=None)).approvals
        with pytest.raises(Conflict):
            await stack.client.decide(found.id, approve=True, by="ada")
        (told,) = await events(stack, key, EventKind.APPROVAL_DECIDED)
        assert told.payload["state"] == ApprovalState.EXPIRED
        assert (await stack.client.approvals(session_key=key)).total == 0
