"""Rings of waits: the wait that would close one is refused at once, and all others come to an end.

Nothing here waits for a timeout: each is 60 s, the tool's own.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from perdure.domain.labels import Label
from perdure.domain.states import EventKind, TurnState
from perdure.store.transcript import TurnResult
from tests.support import watching
from tests.support.exchanging import (
    ended,
    result,
    send,
    session,
    sessions,
    start,
    told_by,
)
from tests.support.stack import Stack, running_stack, until

CONFIG = """
[agents.main]
tools = ["sessions", "subagents", "files"]
intake = "CONFIDENTIAL"
[workspace.labels]
"finance/**" = "CONFIDENTIAL"
"""


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("deadlocks")
    async with running_stack(home, temporal_address, config=CONFIG) as running:
        yield running


def wait_for(target: str, text: str = "/say hello") -> str:
    return send(target, text, mode="wait")


async def outcome(stack: Stack, turn: TurnResult, key: str) -> str:
    """The status of a turn's wait, or the code of its refusal."""
    rows = await watching.transcript(stack, key)
    (found,) = [json.loads(row.text) for row in rows if row.id == f"res_{turn.turn}_1_0"]
    return str(found["error"]["code"] if "error" in found else found["status"])


async def test_a_chain_of_waits_that_comes_back_is_refused_where_it_closes(stack: Stack) -> None:
    """A waits for B, B for C; C would wait for A."""
    a, b, c = await sessions(stack, "a", "b", "c")
    to_a = wait_for(a).replace("\\", "\\\\")
    chain = wait_for(b, f"{wait_for(c, to_a + chr(10) + '/say {{1}}')}\n/say {{{{1.response}}}}")
    replied = await result(stack, a, chain)
    refused = json.loads(replied["response"])["error"]
    assert refused["code"] == "deadlock"
    assert refused["message"].endswith(f"{c} → {a} → {b} → {c}.")
    assert await told_by(stack, a, c) == []
    assert len(await told_by(stack, b, a)) == len(await told_by(stack, c, b)) == 1


async def test_two_that_turn_to_each_other_at_once(stack: Stack) -> None:
    """One is refused, the other has its answer, and both turns end."""
    a, b = await sessions(stack, "a", "b")
    asked = [
        await stack.client.send(one, f"/sleep 0.3\n{wait_for(other)}\n/say done")
        for one, other in ((a, b), (b, a))
    ]
    turns = [
        await ended(stack, key, ticket.message_id)
        for key, ticket in zip((a, b), asked, strict=True)
    ]
    assert {turn.state for turn in turns} == {TurnState.COMPLETED}
    outcomes = [await outcome(stack, turn, key) for turn, key in zip(turns, (a, b), strict=True)]
    assert sorted(outcomes) == ["deadlock", "replied"]


async def test_a_ring_of_independent_messages(stack: Stack) -> None:
    keys = await sessions(stack, "a", "b", "c", "d")
    nexts = [*keys[1:], keys[0]]
    asked = [
        await stack.client.send(key, f"/sleep 0.3\n{wait_for(other)}\n/say done")
        for key, other in zip(keys, nexts, strict=True)
    ]
    turns = [
        await ended(stack, key, ticket.message_id) for key, ticket in zip(keys, asked, strict=True)
    ]
    outcomes = [await outcome(stack, turn, key) for turn, key in zip(turns, keys, strict=True)]
    assert sorted(outcomes) == ["deadlock", "replied", "replied", "replied"]


async def test_a_child_that_would_wait_for_the_parent_that_waits_for_it(stack: Stack) -> None:
    a = await session(stack, "parent")
    task = f"{wait_for(a)}\n/say {{{{1}}}}"
    spawn = f"/sessions_spawn {json.dumps({'task': task.replace('{{', chr(92) + '{{')})}"
    spawned = await result(stack, a, spawn)
    refused = json.loads(spawned["response"])["error"]
    assert refused["code"] == "deadlock"
    assert f"{a} → {spawned['session_key']}" in refused["message"]
    assert (await stack.client.status(a)).pending == 0


async def test_the_ring_is_named_as_far_as_the_one_refused_may_see(stack: Stack) -> None:
    """B has risen since A asked it, and waits for C, which is busy and low."""
    a, b, c = await sessions(stack, "a", "b", "c")
    file = watching.workspace(stack, b) / "finance" / "a"
    file.parent.mkdir(parents=True)
    file.write_text("secret")
    last = await stack.client.send(c, f"/sleep 2\n{wait_for(a)}\n/say {{{{1}}}}")
    rises = '/read {"path": "finance/a"}\n---\n' + wait_for(c)
    first = await start(stack, a, wait_for(b, rises), "/say {{1.status}}")
    await watching.event(stack, b, EventKind.EXCHANGE_OPENED)
    refused = json.loads((await ended(stack, c, last.message_id)).text)["error"]
    assert refused["code"] == "deadlock"
    assert refused["message"].endswith(f"{c} → {a} → another session → {c}.")
    # The answer is above A, but it is there.
    assert (await ended(stack, a, first)).text == "replied"
    assert (await stack.client.status(a)).label is Label.CONFIDENTIAL


async def _told(stack: Stack, key: str, sender: str) -> bool:
    return bool(await told_by(stack, key, sender))


async def test_an_answer_opens_the_ring_again(stack: Stack) -> None:
    """Who has answered may wait for the one that asked, as soon as it has answered."""
    a, b = await sessions(stack, "a", "b")
    for _ in range(3):
        asked = await start(stack, a, wait_for(b, "/sleep 0.2\n/say first"), "/say {{1.status}}")
        back = await stack.client.send(b, f"{wait_for(a)}\n/say {{{{1.status}}}}")
        assert (await ended(stack, a, asked)).text == "replied"
        assert (await ended(stack, b, back.message_id)).text == "replied"


async def test_a_ping_pong_ends_when_the_other_has_come_to_wait(stack: Stack) -> None:
    """While the sender answers aside, the target turns to it with a wait of its own."""
    a, b = await sessions(stack, "a", "b")
    call = send(b, "/say /sleep 1", mode="ping-pong", max_turns=4)
    asked = await stack.client.send(a, f"{call}\n/say {{{{1.ended_by}}}}")
    await until(lambda: _told(stack, a, b))
    back = await start(stack, b, wait_for(a), "/say {{1.status}}")
    assert (await ended(stack, a, asked.message_id)).text == "deadlock"
    assert (await ended(stack, b, back)).text == "replied"
    ends = await watching.events(stack, a, EventKind.EXCHANGE_ENDED)
    assert [event.payload["ended_by"] for event in ends] == ["deadlock"]
