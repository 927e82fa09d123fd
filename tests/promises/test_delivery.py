"""Each message runs once, in its own turn, whatever arrives beside it: two in one workflow task,
signals that hold nonsense, calls with the wrong arguments.

Each test goes through `SessionClient` or Temporal itself, and a real worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowUpdateFailedError
from temporalio.common import RawValue

from activities.post import workflow_id
from perdure.domain.envelopes import Envelope, Sender, SenderKind
from perdure.domain.messages import Role
from perdure.domain.states import EventKind
from tests.support import watching
from tests.support.accounting import all_ended, assert_answered_once, count, said, turns_of
from tests.support.sending import deliver, signal
from tests.support.stack import Stack, fresh_key, running_stack

TIMEOUT = 60

SIGNALED = "WORKFLOW_EXECUTION_SIGNALED"

#: Three model steps, each with tools, so that turns could interleave in many places.
STEPS = "/ls {}\n/ls {}\n---\n/ls {}\n---\n"


def raw(data: bytes, encoding: bytes = b"json/plain") -> RawValue:
    return RawValue(Payload(metadata={"encoding": encoding}, data=data))


NONSENSE = [
    pytest.param((), id="nothing"),
    pytest.param((None,), id="null"),
    pytest.param(("text",), id="string"),
    pytest.param(([1, 2],), id="list"),
    pytest.param(({},), id="empty"),
    pytest.param(({"message_id": 5},), id="number for an id"),
    pytest.param(({"message_id": ""},), id="empty id"),
    pytest.param(({"message_id": "two words"},), id="id with a space"),
    pytest.param(({"message_id": "x" * 1_000_000},), id="huge id"),
    pytest.param(({"message_id": "x", "label": "COSMIC"},), id="unknown label"),
    pytest.param(({"message_id": "x", "sender": {"id": "x" * 600}},), id="huge sender"),
    pytest.param(({"message_id": "one"}, {"message_id": "two"}), id="two arguments"),
    pytest.param((raw(b"{never closed"),), id="no JSON"),
    pytest.param((raw(b"[" * 50_000),), id="deep JSON"),
    pytest.param((raw(b'{"message_id": "\\ud800"}'),), id="lone surrogate"),
    pytest.param((raw(b"\xff\x00", b"unknown/encoding"),), id="unknown encoding"),
]


@pytest.fixture(scope="module")
async def own(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    """A stack whose worker these tests may stop."""
    async with running_stack(tmp_path_factory.mktemp("own"), temporal_address) as running:
        yield running


async def handle_update(stack: Stack, key: str, update: str, *arguments: object) -> None:
    handle = stack.client.temporal.get_workflow_handle(workflow_id(key))
    await handle.execute_update(update, args=list(arguments))


async def assert_turns_stand_apart(stack: Stack, key: str) -> None:
    """Every message of a turn, and its events, come before those of the next."""
    numbers = [entry.turn for entry in await said(stack, key)]
    assert numbers == sorted(numbers)
    told = [event.turn for event in await watching.events(stack, key) if event.turn]
    assert told == sorted(told)
    for turn in await turns_of(stack, key):
        first, *_, last = [entry for entry in await said(stack, key) if entry.turn == turn.turn]
        assert (first.role, first.id) == (Role.USER, turn.message_id)
        assert (last.role, last.text) == (Role.ASSISTANT, turn.message_id)


async def test_two_messages_in_one_workflow_task_do_not_interleave(own: Stack) -> None:
    """Promise 10, by signal and by update: both are there before a worker looks at either."""
    key = fresh_key("same-task")
    await own.client.ask(key, "/say start", message_id="start", timeout=TIMEOUT)
    own.worker.kill()
    for message_id in ("signal-1", "signal-2"):
        await deliver(own, key, f"{STEPS}/say {message_id}", Envelope(message_id=message_id))
    asking = [
        asyncio.create_task(
            own.client.ask(key, f"{STEPS}/say {message_id}", message_id=message_id, timeout=TIMEOUT)
        )
        for message_id in ("update-1", "update-2")
    ]
    async with asyncio.timeout(TIMEOUT):
        while await own.client.store.mailbox.count(key) < 4:  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.02)
    own.worker.start()

    assert [answer.text for answer in await asyncio.gather(*asking)] == ["update-1", "update-2"]
    await all_ended(own, key, 5)
    history = await watching.history(own, key)
    # Both signals lie between two workflow tasks: one task saw them both.
    signals = [index for index, event in enumerate(history) if count([event], SIGNALED)]
    assert len(signals) == 2
    assert not count(history[signals[0] : signals[1]], "WORKFLOW_TASK_COMPLETED")
    await assert_turns_stand_apart(own, key)


async def test_many_messages_at_once_do_not_interleave(stack: Stack) -> None:
    key = fresh_key("at-once")
    ids = [f"m{number}" for number in range(12)]
    await asyncio.gather(
        *(
            stack.client.send(key, f"{STEPS}/say {message_id}", message_id=message_id)
            for message_id in ids
        )
    )
    await all_ended(stack, key, len(ids))
    assert sorted(turn.message_id for turn in await turns_of(stack, key)) == sorted(ids)
    await assert_turns_stand_apart(stack, key)


async def test_a_signal_is_answered_once(stack: Stack) -> None:
    """However often it is sent, before its turn, during it, after it."""
    key = fresh_key("signal")
    await stack.client.ask(key, "/say start", message_id="start", timeout=TIMEOUT)
    sender = Sender(kind=SenderKind.SESSION, id="default:other")
    envelope = Envelope(message_id="signalled", sender=sender)
    await deliver(stack, key, "/sleep 0.3\n/say done", envelope)
    for _ in range(3):
        await signal(stack, key, envelope)
    await watching.event(stack, key, EventKind.STEP_STARTED)
    await signal(stack, key, envelope)
    assert (await stack.client.wait(key, "signalled", timeout=TIMEOUT)).text == "done"
    await signal(stack, key, envelope)
    ticket = await stack.client.send(key, "/sleep 0.3\n/say done", message_id="signalled")
    assert ticket.duplicate

    await stack.client.ask(key, "/say end", message_id="end", timeout=TIMEOUT)
    await assert_answered_once(stack, key, ["start", "signalled", "end"])
    (message,) = [m for m in await watching.transcript(stack, key) if m.id == "signalled"]
    assert message.from_session == "default:other"


@pytest.mark.parametrize("arguments", NONSENSE)
async def test_a_malformed_signal_does_not_wedge_the_session(
    stack: Stack, arguments: tuple[object, ...]
) -> None:
    key = fresh_key("nonsense")
    await stack.client.ask(key, "/say start", message_id="start", timeout=TIMEOUT)
    await signal(stack, key, *arguments)
    good = Envelope(message_id="good")
    await deliver(stack, key, "/say good", good)
    assert (await stack.client.wait(key, "good", timeout=TIMEOUT)).text == "good"
    await stack.client.ask(key, "/say end", message_id="end", timeout=TIMEOUT)
    await assert_answered_once(stack, key, ["start", "good", "end"])


async def test_a_signal_without_a_text_is_reported_as_dropped(stack: Stack) -> None:
    """Its turn cannot begin; the session goes on with the next at once."""
    key = fresh_key("no-text")
    await stack.client.ask(key, "/say start", message_id="start", timeout=TIMEOUT)
    await signal(stack, key, Envelope(message_id="ghost"))
    await stack.client.ask(key, "/say end", message_id="end", timeout=TIMEOUT)
    await assert_answered_once(stack, key, ["start", "end"])
    (dropped,) = await watching.events(stack, key, EventKind.MESSAGE_DROPPED)
    assert dropped.payload["message_id"] == "ghost"


@pytest.mark.parametrize("update", ["admit", "interrupt", "reset", "close", "unknown"])
@pytest.mark.parametrize(
    "arguments",
    [(), ({"message_id": ""},), ("a", "b"), (raw(b"{"),)],
    ids=["nothing", "object", "two arguments", "no JSON"],
)
async def test_a_malformed_call_does_not_wedge_the_session(
    stack: Stack, update: str, arguments: tuple[object, ...]
) -> None:
    key = fresh_key("malformed-call")
    await stack.client.ask(key, "/say start", message_id="start", timeout=TIMEOUT)
    # What takes no argument may ignore one.
    with suppress(WorkflowUpdateFailedError):
        await handle_update(stack, key, update, *arguments)
    await stack.client.ask(key, "/say end", message_id="end", timeout=TIMEOUT)
    await assert_answered_once(stack, key, ["start", "end"])
