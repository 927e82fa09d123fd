"""Who may know of whom, and what may come back: labels between sessions that send to each other.

A refusal for what is hidden is the one for what is not there; only the audit trail knows better.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from perdure.domain.approvals import Approval, ApprovalState
from perdure.domain.envelopes import Envelope, Sender, SenderKind
from perdure.domain.errors import Conflict, InvalidArgument, NotFound
from perdure.domain.exchanges import Mode
from perdure.domain.labels import Label
from perdure.domain.states import EventKind, TurnState
from perdure.sending import HOOK
from tests.support import watching
from tests.support.exchanging import (
    TIMEOUT,
    dropped,
    ended,
    error,
    hears,
    result,
    send,
    session,
    start,
    told_by,
)
from tests.support.policed import audit, events, pending, raises
from tests.support.sending import deliver
from tests.support.stack import Stack, fresh_key, running_stack, until

CONFIG = """
[agents.main]
tools = ["sessions", "subagents", "files"]
[agents.open]
tools = ["sessions", "files"]
intake = "CONFIDENTIAL"
[agents.low]
tools = ["sessions", "files"]
clearance = "INTERNAL"
intake = "INTERNAL"
[workspace.labels]
"finance/**" = "CONFIDENTIAL"
"staff/**" = "INTERNAL"
"""
SECRET = "the-merger-is-on"
#: Raises the session that runs it, and tells what it has read.
TELL = '/read {"path": "finance/a"}\n/say {{1.content}}'
HIGH = Label.CONFIDENTIAL


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("labels")
    async with running_stack(home, temporal_address, config=CONFIG) as running:
        yield running


async def who_knows(stack: Stack, name: str, agent: str | None = None) -> str:
    """A session that is PUBLIC until it looks into a file of its own."""
    key = await session(stack, name, agent=agent)
    file = watching.workspace(stack, key) / "finance" / "a"
    file.parent.mkdir(parents=True)
    file.write_text(SECRET)
    return key


async def label(stack: Stack, key: str) -> Label:
    return (await stack.client.status(key)).label


@pytest.mark.parametrize("mode", ["fire-and-forget", "wait", "ping-pong"])
async def test_a_hidden_session_is_answered_for_as_one_that_is_not_there(
    stack: Stack, mode: str
) -> None:
    a, hidden = await session(stack, "a"), await session(stack, "hidden", label=HIGH)
    elsewhere = fresh_key("x").replace("default:", "other:")
    await stack.client.ask(elsewhere, "/say here", timeout=TIMEOUT)
    refusals = [
        await error(stack, a, send(key, "/say never", mode=mode))
        for key in (fresh_key("none"), hidden, elsewhere)
    ]
    assert refusals[0]["code"] == "not_found"
    assert refusals == refusals[:1] * 3
    reasons = [entry.reason for entry in await audit(stack, a, HOOK)]
    assert reasons == [
        "It does not exist.",
        "It is CONFIDENTIAL; the one that asks is PUBLIC.",
        "It belongs to another tenant.",
    ]
    for key in (hidden, elsewhere):
        assert (await stack.client.status(key)).pending == 0
        assert await told_by(stack, key, a) == []
    with pytest.raises(NotFound) as raised:
        await stack.client.tell(a, hidden, "/say never", mode=Mode(mode))
    assert raised.value.refusal.model_dump(mode="json") == refusals[0]


async def test_what_a_session_knows_does_not_go_to_one_below(stack: Stack) -> None:
    a, b = await session(stack, "a", label=HIGH), await session(stack, "b")
    refused = await error(stack, a, send(b, SECRET, mode="wait"))
    assert refused["code"] == "denied"
    assert refused["message"].startswith("write-down: this session is CONFIDENTIAL")
    assert await told_by(stack, b, a) == []
    (entry,) = await audit(stack, a, HOOK)
    assert (entry.decision, entry.decided_by) == ("BLOCK", "invariant:label-flow")


async def test_an_intake_lets_it_in_with_its_level(stack: Stack) -> None:
    a, b = await session(stack, "a", label=HIGH), await session(stack, "b", agent="open")
    replied = await result(stack, a, send(b, "/say heard", mode="wait"))
    assert replied["response"] == "heard"
    (told,) = await told_by(stack, b, a)
    assert told.label is HIGH
    assert await label(stack, b) is HIGH
    assert await raises(stack, b) == [("PUBLIC", "CONFIDENTIAL", "message")]


async def test_an_intake_ends_at_the_clearance(stack: Stack) -> None:
    a, b = await session(stack, "a", label=HIGH), await session(stack, "b", agent="low")
    refused = await error(stack, a, send(b, SECRET))
    assert refused["code"] == "denied"
    assert await told_by(stack, b, a) == []


@pytest.mark.parametrize("mode", ["wait", "ping-pong"])
async def test_an_answer_that_is_too_high_is_withheld_until_a_person_lets_it_in(
    stack: Stack, mode: str
) -> None:
    a, b = await session(stack, "a"), await who_knows(stack, "b")
    withheld = await result(stack, a, send(b, TELL, mode=mode))
    assert withheld == {"sent": True, "status": "withheld"}
    assert await label(stack, a) is Label.PUBLIC
    assert SECRET not in str(await watching.transcript(stack, a))

    (asked,) = await pending(stack, a)
    assert asked.tool == "take_in"
    assert b in asked.reason
    assert SECRET not in str(asked)
    with pytest.raises(InvalidArgument):
        await stack.client.decide(asked.id, approve=True, by="ada", arguments="{}")
    await stack.client.decide(asked.id, approve=True, by="ada")
    (told,) = await hears(stack, a, b)
    assert told.text.endswith(SECRET)
    assert told.label is HIGH
    assert await label(stack, a) is HIGH
    assert await raises(stack, a) == [("PUBLIC", "CONFIDENTIAL", "message")]
    decided = await audit(stack, a, "APPROVAL")
    assert [entry.decided_by for entry in decided] == ["person:ada"]
    # Once, however often somebody asks.
    with pytest.raises(Conflict):
        await stack.client.decide(asked.id, approve=True, by="bob")
    await stack.client.ask(a, "/say rest", timeout=TIMEOUT)
    assert len(await told_by(stack, a, b)) == 1


async def test_what_a_person_does_not_let_in_never_comes(stack: Stack) -> None:
    a, b = await session(stack, "a"), await who_knows(stack, "b")
    await result(stack, a, send(b, TELL, mode="wait"))
    (asked,) = await pending(stack, a)
    await stack.client.decide(asked.id, approve=False, by="ada")
    await stack.client.ask(a, "/say rest", timeout=TIMEOUT)
    assert await told_by(stack, a, b) == []
    assert await label(stack, a) is Label.PUBLIC


async def test_what_is_let_in_opens_a_closed_session(stack: Stack) -> None:
    a, b = await session(stack, "a"), await who_knows(stack, "b")
    await result(stack, a, send(b, TELL, mode="wait"))
    (asked,) = await pending(stack, a)
    await stack.client.close(a)
    await stack.client.decide(asked.id, approve=True, by="ada")
    (told,) = await hears(stack, a, b)
    assert told.text.endswith(SECRET)


async def test_what_is_let_in_after_a_reset_is_not_taken_in(stack: Stack) -> None:
    a, b = await session(stack, "a"), await who_knows(stack, "b")
    await result(stack, a, send(b, TELL, mode="wait"))
    (asked,) = await pending(stack, a)
    await stack.client.reset(a)
    await stack.client.decide(asked.id, approve=True, by="ada")

    async def told() -> bool:
        return bool(await dropped(stack, a))

    await until(told)
    assert [reason for _, reason in await dropped(stack, a)] == ["reset"]
    assert await told_by(stack, a, b) == []
    assert await label(stack, a) is Label.PUBLIC


async def test_an_answer_above_the_clearance_nobody_can_let_in(stack: Stack) -> None:
    a, b = await session(stack, "a", agent="low"), await who_knows(stack, "b")
    withheld = await result(stack, a, send(b, TELL, mode="wait"))
    assert withheld == {"sent": True, "status": "withheld"}
    assert (await stack.client.approvals(session_key=a)).total == 0


async def test_an_intake_takes_a_higher_answer_and_raises_who_asked(stack: Stack) -> None:
    a, b = await session(stack, "a", agent="open"), await who_knows(stack, "b")
    replied = await result(stack, a, send(b, TELL, mode="wait"))
    assert replied["response"] == SECRET
    assert await label(stack, a) is HIGH


async def test_a_late_answer_that_is_too_high_is_withheld(stack: Stack) -> None:
    a, b = await session(stack, "a"), await who_knows(stack, "b")
    call = send(b, f"/sleep 1\n{TELL}", mode="wait", timeout_ms=300)
    assert (await result(stack, a, call))["status"] == "delivered_no_reply"
    (asked,) = await pending(stack, a)
    assert await told_by(stack, a, b) == []
    await stack.client.decide(asked.id, approve=True, by="ada")
    (told,) = await hears(stack, a, b)
    assert told.text.endswith(SECRET)


async def test_a_ping_pong_ends_when_a_side_has_risen_above_the_other(stack: Stack) -> None:
    """The sender learns on its side thread what the target may not know."""
    a, b = await who_knows(stack, "a"), await session(stack, "b")
    learn = '/say /read {"path": "finance/a"}'
    settled = await result(stack, a, send(b, learn, mode="ping-pong", max_turns=4))
    assert (settled["turns_completed"], settled["ended_by"]) == (1, "policy")
    assert await label(stack, a) is HIGH
    assert await label(stack, b) is Label.PUBLIC
    assert len(await told_by(stack, b, a)) == 1


async def test_a_message_is_looked_at_again_when_it_arrives(stack: Stack) -> None:
    """It was allowed when it was posted, and the target has begun anew since."""
    b = await session(stack, "b")
    sender = Sender(kind=SenderKind.SESSION, id="default:someone")
    envelope = Envelope(message_id="snd_high", sender=sender, label=HIGH)
    await deliver(stack, b, SECRET, envelope)

    async def told() -> bool:
        return bool(await dropped(stack, b))

    await until(told)
    assert await dropped(stack, b) == [("snd_high", "denied")]
    assert (await stack.client.status(b)).pending == 0
    await stack.client.ask(b, "/say on", timeout=TIMEOUT)
    assert await label(stack, b) is Label.PUBLIC


async def test_who_waits_is_told_when_the_target_may_no_longer_take_the_message(
    stack: Stack,
) -> None:
    """The target is reset while the message of a higher session waits behind its turn."""
    a, b = await session(stack, "a", label=HIGH), await session(stack, "b", label=HIGH)
    await start(stack, b, "/sleep 600", "/say never")
    asked = await start(stack, a, send(b, SECRET, mode="wait"), "/say {{1}}")

    async def waits() -> bool:
        return (await stack.client.status(b)).pending == 1

    await until(waits)
    await stack.client.reset(b)
    assert '"status":"refused"' in (await ended(stack, a, asked)).text
    assert await label(stack, b) is Label.PUBLIC


@pytest.mark.parametrize("waits", [True, False])
async def test_a_result_above_its_parent_is_withheld_until_a_person_lets_it_in(
    stack: Stack, waits: bool
) -> None:
    a = await session(stack, "parent")
    task = '/write {"path": "finance/a", "content": "x"}\n/say the child knows'
    spawn = f"/sessions_spawn {json.dumps({'task': task, 'async': not waits})}"
    spawned = await result(stack, a, spawn)
    (asked,) = await pending(stack, a)
    assert asked.tool == "take_in"
    if waits:
        assert spawned["response"].startswith("[withheld]")
    child = spawned["session_key"]
    assert "the child knows" not in str(await told_by(stack, a, child))
    assert await label(stack, a) is Label.PUBLIC

    await stack.client.decide(asked.id, approve=True, by="ada")
    told = (await hears(stack, a, child, 1 if waits else 2))[-1]
    assert told.text.startswith("[Subagent Result: main]")
    assert "the child knows" in told.text
    assert await label(stack, a) is HIGH


async def test_a_person_reads_no_answer_above_the_gateway(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = tmp_path_factory.mktemp("gateway")
    config = CONFIG + '[gateway]\nlevel = "INTERNAL"\n'
    async with running_stack(home, temporal_address, config=config) as stack:
        a, b = await session(stack, "a"), await who_knows(stack, "b")
        told = await stack.client.tell(a, b, TELL, mode=Mode.WAIT)
        assert SECRET not in told.model_dump_json()
        assert "withheld: this message is CONFIDENTIAL" in told.model_dump_json()


async def test_a_secret_in_a_message_is_refused(stack: Stack) -> None:
    a, b = await session(stack, "a"), await session(stack, "b")
    key = "AKIA" + "IOSFODNN7EXAMPLQ"
    refused = await error(stack, a, send(b, f"use {key}"))
    assert refused["code"] == "denied"
    assert await told_by(stack, b, a) == []
    (told,) = await events(stack, a, EventKind.TOOL_COMPLETED)
    assert told.payload["status"] == "error"


async def test_approvals_of_releases_hold_up_nothing(stack: Stack) -> None:
    """The session goes on, also with calls that wait for a person themselves."""
    a, b = await session(stack, "a"), await who_knows(stack, "b")
    await result(stack, a, send(b, TELL, mode="wait"))
    (asked,) = await pending(stack, a)
    turns = await asyncio.gather(
        *(stack.client.ask(a, f"/ls {{}}\n/say {n}", timeout=TIMEOUT) for n in range(3))
    )
    assert {turn.state for turn in turns} == {TurnState.COMPLETED}
    assert (await approval(stack, asked.id)).state is ApprovalState.PENDING


async def approval(stack: Stack, approval_id: str) -> Approval:
    return await stack.client.store.approvals.get(approval_id)
