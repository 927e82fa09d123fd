"""What a caller sees of sessions through `SessionClient.on_behalf_of`, while their labels rise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from gateway.client import SessionClient
from gateway.live import TextDelta, ToolStarted, TurnEnded
from perdure.domain.access import Caller, Scope
from perdure.domain.envelopes import Sender
from perdure.domain.errors import Denied, NotFound
from perdure.domain.labels import Label
from perdure.domain.memory import NewEntry, Trust
from perdure.domain.states import EventKind
from perdure.store.outbox import Event
from tests.support.policed import call, pending, rule
from tests.support.stack import Stack, fresh_key, running_stack

CONFIG = f"""
[agents.main]
tools = ["files", "memory"]
[memory]
embedder = "hashing"
{rule("ask", "PRE_TOOL_CALL", "REQUIRE_APPROVAL", ("tool", "equals", "write"))}
"""


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("sight")
    async with running_stack(home, temporal_address, config=CONFIG) as stack:
        yield stack


def caller(stack: Stack, name: str, clearance: Label, *scopes: Scope) -> SessionClient:
    who = Caller(
        name=name, tenant="default", scopes=frozenset(scopes or Scope), clearance=clearance
    )
    return stack.client.on_behalf_of(who)


async def test_who_talks_with_a_session_goes_on_seeing_it_without_its_words(stack: Stack) -> None:
    key = fresh_key("risen")
    low, other = (caller(stack, name, Label.PUBLIC) for name in ("low", "other"))
    boss = caller(stack, "boss", Label.CONFIDENTIAL)
    assert (await low.ask(key, "/say hello", timeout=60)).text == "hello"
    assert (await other.status(key)).label == "PUBLIC"
    await boss.ask(key, "/say the merger", label=Label.CONFIDENTIAL, timeout=60)

    assert (await low.status(key)).label == "CONFIDENTIAL"
    risen = await low.ask(key, "/say and again", timeout=60)
    assert risen.text == "[withheld: this message is CONFIDENTIAL]"
    told = [message.text for message in (await low.history(key)).messages]
    assert told[:2] == ["/say hello", "hello"]
    assert "merger" not in str(told)
    assert (await low.search("merger", session_key=key)).total == 0
    assert (await low.search("hello", session_key=key)).total == 2
    assert (await boss.search("merger", session_key=key)).total == 2

    # To those who have never written to it, it is gone, and cannot be joined.
    with pytest.raises(NotFound):
        await other.status(key)
    with pytest.raises(NotFound):
        await other.send(key, "let me in")
    assert key not in {one.session_key for one in (await other.sessions()).sessions}
    # A person at this machine looks after every session.
    assert (await stack.client.status(key)).label == "CONFIDENTIAL"


async def test_what_is_streamed_stays_below_the_clearance(stack: Stack) -> None:
    key = fresh_key("live")
    low, boss = (
        caller(stack, "low", Label.PUBLIC),
        caller(stack, "boss", Label.CONFIDENTIAL),
    )
    await low.ask(key, "/say hello", timeout=60)
    after = await stack.client.store.outbox.newest_id()
    text = f"{call('read', path='merger.txt')}\n---\n/say the merger"
    async with low.live(key, after=after) as live:
        await boss.send(key, text, label=Label.CONFIDENTIAL)
        items = []
        async with asyncio.timeout(60):
            async for item in live:
                items.append(item)
                if isinstance(item, TurnEnded):
                    break
    assert "merger" not in str(items)
    assert any(isinstance(item, ToolStarted) for item in items)
    pieces = [item.text for item in items if isinstance(item, TextDelta)]
    assert set(pieces) == {"[withheld: this message is CONFIDENTIAL]"}


async def test_a_listener_is_told_no_more_once_the_session_is_out_of_sight(stack: Stack) -> None:
    key = fresh_key("lost")
    boss, other = (
        caller(stack, "boss", Label.CONFIDENTIAL),
        caller(stack, "other", Label.PUBLIC),
    )
    await boss.ask(key, "/say hello", timeout=60)
    await boss.ask(key, "/say more", label=Label.INTERNAL, timeout=60)
    heard: list[Event] = []

    async def listen(session_key: str) -> None:
        async with aclosing(other.events(session_key)) as events:
            async for event in events:
                heard.append(event)

    with pytest.raises(NotFound):
        await listen(key)
    assert heard == []
    later = fresh_key("lost-later")
    await boss.ask(later, "/say hello", timeout=60)

    listening = asyncio.create_task(listen(later))
    await boss.ask(later, "/say more", label=Label.INTERNAL, timeout=60)
    with pytest.raises(NotFound):
        await asyncio.wait_for(listening, 60)
    kinds = [event.kind for event in heard]
    assert EventKind.TURN_COMPLETED in kinds
    assert EventKind.LABEL_RAISED not in kinds


async def test_a_caller_sends_and_decides_in_their_own_name(stack: Stack) -> None:
    key = fresh_key("names")
    boss = caller(stack, "boss", Label.CONFIDENTIAL)
    sent = await boss.send(key, call("write", path="a", content="b"), sender=Sender(id="somebody"))
    (waiting,) = await pending(stack, key)
    decided = await boss.decide(waiting.id, approve=False, by="somebody")
    assert decided.decided_by == "boss"
    await boss.wait(key, sent.message_id, timeout=60)
    with pytest.raises(Denied, match="clearance"):
        await caller(stack, "low", Label.PUBLIC).send(key, "x", label=Label.INTERNAL)


async def test_an_approval_above_the_clearance_is_not_there_after_a_reset_either(
    stack: Stack,
) -> None:
    key = fresh_key("approval")
    low, boss = (
        caller(stack, "low", Label.PUBLIC),
        caller(stack, "boss", Label.CONFIDENTIAL),
    )
    await low.ask(key, "/say hello", timeout=60)
    await boss.send(key, call("write", path="a", content="merger"), label=Label.CONFIDENTIAL)
    (waiting,) = await pending(stack, key)
    for _ in range(2):
        assert (await low.approvals(session_key=key, state=None)).total == 0
        with pytest.raises(NotFound):
            await low.approval(waiting.id)
        with pytest.raises(NotFound):
            await low.decide(waiting.id, approve=True, by="low")
        assert (await boss.approval(waiting.id)).id == waiting.id
        await boss.interrupt(key)
        await boss.reset(key)
    assert (await low.status(key)).label == "PUBLIC"


async def test_memory_is_the_callers_tenants_up_to_their_clearance(stack: Stack) -> None:
    low = caller(stack, "low", Label.PUBLIC, Scope.STEER)
    boss = caller(stack, "boss", Label.CONFIDENTIAL)

    def entry(content: str, **fields: object) -> NewEntry:
        given = {"tenant": "default", "agent": "main", "content": content, **fields}
        return NewEntry.model_validate(given)

    await boss.memory.store(entry("the merger is in May", label=Label.CONFIDENTIAL))
    await low.memory.store(entry("lunch is at noon"))
    seen = await low.memory.browse(low.memory.view())
    assert [one.content for one in seen.entries] == ["lunch is at noon"]
    high = stack.client.memory.view(label=Label.RESTRICTED)
    assert (await low.memory.browse(high)).total == 1
    assert (await boss.memory.browse(high)).total == 2
    foreign = stack.client.memory.view("globex")
    with pytest.raises(Denied, match="tenant"):
        await low.memory.browse(foreign)
    with pytest.raises(Denied, match="tenant"):
        await low.memory.store(entry("x", tenant="globex"))
    with pytest.raises(Denied, match="above"):
        await low.memory.store(entry("x", label=Label.INTERNAL))
    with pytest.raises(Denied, match="admin"):
        await low.memory.store(entry("x", trust=Trust.SYSTEM))
