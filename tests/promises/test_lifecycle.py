"""A session ends and goes on: closed and reopened, reset, terminated behind its back.

Whatever ends a run, a message that was confirmed is answered once or reported as dropped, and
whoever waits for it is told. Each test goes through `SessionClient`, a real Temporal server and a
real worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from activities.post import workflow_id
from perdure.domain.errors import NotFound
from perdure.domain.messages import Role
from perdure.domain.states import EventKind, SessionState, TurnState
from perdure.store.transcript import TurnResult
from tests.support import watching
from tests.support.accounting import all_ended, assert_answered_once, said, turns_of
from tests.support.openai_server import OpenAIServer, Request, says
from tests.support.stack import Stack, fresh_key, until
from workflows.session import Session

TIMEOUT = 60


def texts(request: Request) -> list[str]:
    """What a provider was shown after the instructions."""
    return [message["content"] for message in request.messages[1:]]


async def busy(stack: Stack, key: str, waiting: Sequence[str]) -> None:
    """A turn that will not end by itself, and messages waiting behind it."""
    await stack.client.send(key, "/sleep 600\n/say never", message_id="blocker")
    await watching.event(stack, key, EventKind.STEP_STARTED)
    for message_id in waiting:
        await stack.client.send(key, f"/say {message_id}", message_id=message_id)


async def terminate(stack: Stack, key: str) -> None:
    await stack.client.temporal.get_workflow_handle(workflow_id(key)).terminate("by an operator")


async def run_states(stack: Stack, key: str) -> list[str]:
    return [event.kind for event in await watching.events(stack, key) if "session." in event.kind]


# Close -------------------------------------------------------------------------------------------


async def test_a_message_to_a_completed_session_reopens_it(
    models: Stack, provider: OpenAIServer
) -> None:
    """Promise 9: turn numbers go on, and the model sees what was said before."""
    key = fresh_key("reopen")
    provider.script(says("the answer is 42"), says("as I said, 42"))
    await models.client.ask(key, "what is the answer?", timeout=TIMEOUT)
    await models.client.close(key)
    assert (await models.client.status(key)).state is SessionState.CLOSED
    described = await models.client.temporal.get_workflow_handle(workflow_id(key)).describe()
    assert described.status is not None
    assert described.status.name == "COMPLETED"

    again = await models.client.ask(key, "say it again", timeout=TIMEOUT)

    assert (again.turn, again.text) == (2, "as I said, 42")
    assert texts(provider.requests[-1]) == [
        "what is the answer?",
        "the answer is 42",
        "say it again",
    ]
    assert (await models.client.status(key)).state is SessionState.IDLE
    opened = await watching.events(models, key, EventKind.SESSION_OPENED)
    assert [event.payload["reopened"] for event in opened] == [False, True]


async def test_the_same_id_runs_once_across_a_close(stack: Stack) -> None:
    """Promise 5, where the run that took the id has completed."""
    key = fresh_key("once-closed")
    first = await stack.client.ask(key, "/say one", message_id="one", timeout=TIMEOUT)
    await stack.client.close(key)
    assert await stack.client.ask(key, "/say one", message_id="one", timeout=TIMEOUT) == first
    assert (await stack.client.send(key, "/say one", message_id="one")).duplicate
    await stack.client.ask(key, "/say two", message_id="two", timeout=TIMEOUT)
    assert (await stack.client.send(key, "/say one", message_id="one")).duplicate
    await assert_answered_once(stack, key, ["one", "two"])


async def test_close_answers_first_what_was_admitted(stack: Stack) -> None:
    key = fresh_key("close-waiting")
    waiting = ["a", "b", "c"]
    await stack.client.send(key, "/sleep 1\n/say slow", message_id="slow")
    for message_id in waiting:
        await stack.client.send(key, f"/say {message_id}", message_id=message_id)
    await stack.client.close(key)
    assert (await stack.client.status(key)).state is SessionState.CLOSED
    await assert_answered_once(stack, key, ["slow", *waiting])


async def test_closes_at_once_all_return(stack: Stack) -> None:
    """Also the one that arrives while the session is closing already."""
    key = fresh_key("closes")
    for number in range(12):
        await stack.client.ask(key, f"/say {number}", timeout=TIMEOUT)
        async with asyncio.timeout(TIMEOUT):
            await asyncio.gather(*(closing(stack, key, number * 0.002 * n) for n in range(8)))
        assert (await stack.client.status(key)).state is SessionState.CLOSED
    await stack.client.close(key)


async def closing(stack: Stack, key: str, after: float) -> None:
    await asyncio.sleep(after)
    await stack.client.close(key)


async def test_senders_racing_with_close_are_each_answered_once(stack: Stack) -> None:
    key = fresh_key("race")
    await stack.client.ask(key, "/say start", message_id="start", timeout=TIMEOUT)
    done = asyncio.Event()

    async def sender(name: int) -> list[TurnResult]:
        answers = []
        for number in range(12):
            # Without pauses the session would never be at rest, and so never close.
            await asyncio.sleep((number * 7 + name * 3) % 10 * 0.02)
            text = f"/say {name}.{number}"
            answers.append(
                await stack.client.ask(key, text, message_id=f"{name}.{number}", timeout=TIMEOUT)
            )
        return answers

    async def closer() -> None:
        while not done.is_set():
            await stack.client.close(key)

    closers = [asyncio.create_task(closer()) for _ in range(2)]
    answers = await asyncio.gather(*(sender(name) for name in range(5)))
    done.set()
    await asyncio.gather(*closers)

    assert [answer.text for part in answers for answer in part] == [
        f"{name}.{number}" for name in range(5) for number in range(12)
    ]
    await assert_answered_once(
        stack, key, ["start", *(answer.message_id for part in answers for answer in part)]
    )
    assert (await run_states(stack, key)).count("session.closed") > 1


async def test_what_does_not_exist_cannot_be_closed_or_reset_or_interrupted(stack: Stack) -> None:
    client = stack.client
    for call in (client.close, client.reset, client.interrupt, client.status, client.history):
        with pytest.raises(NotFound, match="There is no session default:nobody"):
            await call("default:nobody")


# Reset -------------------------------------------------------------------------------------------


async def test_reset_keeps_the_transcript_out_of_the_context(
    models: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("reset")
    provider.script(says("noted"), says("I know nothing of it"))
    await models.client.ask(key, "my name is Ada", timeout=TIMEOUT)
    await models.client.reset(key)
    after = await models.client.ask(key, "what is my name?", timeout=TIMEOUT)

    assert after.turn == 2
    assert texts(provider.requests[-1]) == ["what is my name?"]
    assert [entry.text for entry in await said(models, key)] == [
        "my name is Ada",
        "noted",
        "what is my name?",
        "I know nothing of it",
    ]


async def test_reset_drops_what_waits_and_tells_the_waiters(stack: Stack) -> None:
    key = fresh_key("reset-waiting")
    waiting = ["a", "b", "c"]
    await busy(stack, key, waiting)
    running = asyncio.create_task(stack.client.wait(key, "blocker", timeout=TIMEOUT))
    waiters = [
        asyncio.create_task(stack.client.wait(key, message_id, timeout=TIMEOUT))
        for message_id in waiting
    ]
    asking = asyncio.create_task(
        stack.client.ask(key, "/say d", message_id="d", timeout=TIMEOUT),
    )
    handle = stack.client.temporal.get_workflow_handle_for(Session.run, workflow_id(key))

    async def admitted() -> bool:
        return (await handle.query(Session.status)).inbox == 4

    await until(admitted)
    assert await stack.client.reset(key) == 4

    for task in (*waiters, asking):
        with pytest.raises(NotFound, match="was discarded before its turn"):
            await task
    assert (await running).state is TurnState.INTERRUPTED
    dropped = await watching.events(stack, key, EventKind.MESSAGE_DROPPED)
    assert [event.payload["message_id"] for event in dropped] == [*waiting, "d"]
    # Also who asks only now is told, and does not wait for ever.
    with pytest.raises(NotFound):
        await stack.client.wait(key, "a")
    assert (await stack.client.status(key)).pending == 0


async def test_what_a_reset_dropped_may_be_sent_again(stack: Stack) -> None:
    key = fresh_key("again")
    await busy(stack, key, ["a"])
    assert await stack.client.reset(key) == 1
    again = await stack.client.ask(key, "/say a", message_id="a", timeout=TIMEOUT)
    assert (again.turn, again.text) == (2, "a")


async def test_a_message_after_a_reset_is_answered_after_it(stack: Stack) -> None:
    key = fresh_key("reset-then")
    await busy(stack, key, ["dropped"])
    resetting = asyncio.create_task(stack.client.reset(key))
    answers = await asyncio.gather(
        *(stack.client.ask(key, f"/say {n}", timeout=TIMEOUT) for n in range(5)),
        return_exceptions=True,
    )
    assert await resetting >= 1
    # Each was either dropped with the rest, and told so, or answered.
    kept = [answer for answer in answers if not isinstance(answer, NotFound)]
    assert all(isinstance(answer, TurnResult) for answer in kept)
    last = await stack.client.ask(key, "/say last", timeout=TIMEOUT)
    assert last.text == "last"
    assert len(await turns_of(stack, key)) == 2 + len(kept)


async def test_reset_of_a_closed_session(stack: Stack) -> None:
    key = fresh_key("reset-closed")
    await stack.client.ask(key, "/say one", timeout=TIMEOUT)
    await stack.client.close(key)
    assert await stack.client.reset(key) == 0
    after = await stack.client.ask(key, "/say two", timeout=TIMEOUT)
    assert (after.turn, after.text) == (2, "two")
    assert len(await watching.events(stack, key, EventKind.SESSION_RESET)) == 1


async def test_two_resets_at_once_both_return(stack: Stack) -> None:
    key = fresh_key("resets")
    await busy(stack, key, ["a", "b"])
    async with asyncio.timeout(TIMEOUT):
        dropped = await asyncio.gather(*(stack.client.reset(key) for _ in range(2)))
    assert sorted(dropped) == [0, 2]
    assert (await stack.client.ask(key, "/say after", timeout=TIMEOUT)).turn == 2


async def test_reset_and_close_at_once_both_return(stack: Stack) -> None:
    key = fresh_key("reset-close")
    for _ in range(5):
        await busy_once(stack, key)
        async with asyncio.timeout(TIMEOUT):
            await asyncio.gather(
                stack.client.reset(key), stack.client.close(key), stack.client.reset(key)
            )
    assert (await stack.client.ask(key, "/say alive", timeout=TIMEOUT)).text == "alive"


async def busy_once(stack: Stack, key: str) -> None:
    ticket = await stack.client.send(key, "/sleep 600\n/say never")
    async with asyncio.timeout(TIMEOUT):
        while await stack.client.store.mailbox.holds(key, ticket.message_id):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


# Interrupt ---------------------------------------------------------------------------------------


async def test_interrupt_stops_the_turn_and_not_the_session(stack: Stack) -> None:
    key = fresh_key("interrupt")
    await busy(stack, key, ["next"])
    assert await stack.client.interrupt(key) == 1
    stopped = await stack.client.wait(key, "blocker", timeout=TIMEOUT)
    assert stopped.state is TurnState.INTERRUPTED
    assert "interrupted" in stopped.text
    assert (await stack.client.wait(key, "next", timeout=TIMEOUT)).text == "next"
    await stack.client.close(key)
    assert await stack.client.interrupt(key) is None
    assert (await stack.client.status(key)).state is SessionState.CLOSED


# Terminate ---------------------------------------------------------------------------------------


async def test_a_terminated_session_reopens_with_all_that_waited(stack: Stack) -> None:
    """In the order in which it was sent, and with the turn that was cut off ended as failed."""
    key = fresh_key("terminate")
    waiting = ["a", "b", "c"]
    await busy(stack, key, waiting)
    orphan = asyncio.create_task(stack.client.wait(key, "blocker", timeout=TIMEOUT))
    waiters = [
        asyncio.create_task(stack.client.wait(key, message_id, timeout=TIMEOUT))
        for message_id in waiting
    ]
    await terminate(stack, key)

    reopened = await stack.client.ask(key, "/say d", message_id="d", timeout=TIMEOUT)

    assert (reopened.text, reopened.turn) == ("d", 5)
    assert [result.text for result in await asyncio.gather(*waiters)] == waiting
    failed = await orphan
    assert failed.state is TurnState.FAILED
    assert "terminated during this turn" in failed.text
    assert [turn.message_id for turn in await turns_of(stack, key)] == ["blocker", *waiting, "d"]
    taken = [entry.id for entry in await said(stack, key) if entry.role == Role.USER]
    assert taken == ["blocker", *waiting, "d"]
    assert (await stack.client.status(key)).pending == 0


async def test_the_call_of_a_terminated_turn_changes_nothing_later(stack: Stack) -> None:
    """Its activity goes on for a while without a workflow; its answer comes too late."""
    key = fresh_key("late")
    await stack.client.send(key, "/sleep 1.5\n/say too late", message_id="orphan")
    await watching.event(stack, key, EventKind.STEP_STARTED)
    await terminate(stack, key)
    await stack.client.ask(key, "/sleep 2\n/say after", message_id="after", timeout=TIMEOUT)
    answers = [entry.text for entry in await said(stack, key) if entry.role == Role.ASSISTANT]
    assert len(answers) == 2
    assert "terminated" in answers[0]
    assert answers[1] == "after"


async def test_reset_of_a_terminated_session_drops_what_waited(stack: Stack) -> None:
    key = fresh_key("terminate-reset")
    await busy(stack, key, ["a", "b"])
    waiter = asyncio.create_task(stack.client.wait(key, "a", timeout=TIMEOUT))
    await terminate(stack, key)
    assert await stack.client.reset(key) == 2
    with pytest.raises(NotFound):
        await waiter
    after = await stack.client.ask(key, "/say after", timeout=TIMEOUT)
    assert (after.turn, after.text) == (2, "after")


async def test_close_of_a_terminated_session_answers_what_waited(stack: Stack) -> None:
    key = fresh_key("terminate-close")
    waiting = ["a", "b"]
    await busy(stack, key, waiting)
    await terminate(stack, key)
    await stack.client.close(key)
    assert (await stack.client.status(key)).state is SessionState.CLOSED
    for message_id in waiting:
        assert (await stack.client.wait(key, message_id)).text == message_id
    assert (await stack.client.wait(key, "blocker")).state is TurnState.FAILED


async def test_a_session_terminated_again_and_again_loses_nothing(stack: Stack) -> None:
    key = fresh_key("terminated")
    ids = [f"m{number}" for number in range(30)]
    await stack.client.ask(key, "/say start", message_id="start", timeout=TIMEOUT)
    for number, message_id in enumerate(ids):
        await stack.client.send(key, f"/say {message_id}", message_id=message_id)
        if number % 10 == 9:
            await terminate(stack, key)
    await stack.client.ask(key, "/say end", message_id="end", timeout=TIMEOUT)
    await all_ended(stack, key, 32)
    turns = await turns_of(stack, key)
    assert [turn.message_id for turn in turns] == ["start", *ids, "end"]
    # A turn that was cut off says so; every other has its answer.
    assert [turn.state for turn in turns].count(TurnState.FAILED) <= 3
    for turn in turns:
        expected = turn.message_id if turn.state == TurnState.COMPLETED else "[failed]"
        assert (turn.text or "").startswith(expected)
