"""Workers that die while a summary is written, in a running stack: the reply does not wait for it,
and the sweep goes on where it was.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from perdure.domain.states import EventKind, TurnState
from perdure.store.integrity import check
from tests.support import model_stack, watching
from tests.support.conversations import Conversation
from tests.support.openai_server import OpenAIServer, says
from tests.support.stack import Stack, fresh_key, running_stack, until
from tests.support.sweeping import WORDS, short

CONFIG = """
[agents.main]
model = "rehearsal"
tools = []
context_window = 8000

[context]
summary_model = "openai-chat:summariser"
fresh_tail = 4
leaf_fan_in = 2
condensed_fan_in = 2
"""
TIMEOUT = 90


@pytest.fixture(scope="module")
async def summariser() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        yield server


@pytest.fixture(scope="module")
async def mortal(
    temporal_address: str, summariser: OpenAIServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    """A stack whose worker may die, and is started again by the test that killed it."""
    home = tmp_path_factory.mktemp("crashes")
    environ = model_stack.environ(summariser)
    async with running_stack(home, temporal_address, config=CONFIG, environ=environ) as running:
        yield running


@pytest.fixture
def provider(summariser: OpenAIServer) -> OpenAIServer:
    """Who writes the summaries, without a memory of the test before."""
    summariser.forget()
    summariser.default = short
    return summariser


async def session_of(stack: Stack, turns: int) -> str:
    """A session that has said so much."""
    talk = await Conversation.open(stack.client.store, fresh_key("crash"))
    await talk.fill(f"{number}: {WORDS * 6}" for number in range(2 * turns))
    return talk.key


async def whole(stack: Stack, key: str) -> None:
    """Nothing is lost, nothing done twice, and the context fits."""
    store = stack.client.store
    assert await check(store.database, key) == []
    compacted = await watching.events(stack, key, EventKind.CONTEXT_COMPACTED)
    ids = [event.payload["summary_id"] for event in compacted]
    assert len(ids) == len(set(ids)) == len((await store.nodes.tree(key)).summaries) > 0
    view = await store.tails.look(key, 1_000_000)
    assert view is not None
    raw = {message.id for message in view.groups.messages(0)}
    async for page in store.nodes.messages(key, 0, 1, 1_000_000):
        for message in page:
            over = [one for one in view.summaries if one.covers(message.seq)]
            assert len(over) + (message.id in raw) == 1


async def test_a_worker_killed_in_a_sweep_after_a_turn_has_answered_before_and_goes_on_after(
    mortal: Stack, provider: OpenAIServer
) -> None:
    key = await session_of(mortal, turns=29)
    provider.script(says("half of it", ending="hang"))
    result = await mortal.client.ask(key, "/say at once", timeout=TIMEOUT)
    assert result.text == "at once"
    await provider.arrived()
    mortal.worker.kill()
    assert (await mortal.client.store.nodes.tree(key)).summaries == ()
    mortal.worker.start()

    async def swept() -> bool:
        return (await mortal.client.store.sweeps.state(key)).ended is not None

    await until(swept, timeout=TIMEOUT)
    await whole(mortal, key)
    again = await mortal.client.ask(key, "/say and again", timeout=TIMEOUT)
    assert again.text == "and again"


async def test_a_worker_killed_in_a_sweep_that_a_step_waits_for_answers_once(
    mortal: Stack, provider: OpenAIServer
) -> None:
    key = await session_of(mortal, turns=60)
    provider.script(says("The beginning."), says("half of it", ending="hang"))
    ticket = await mortal.client.send(key, "/say in the end")
    await provider.arrived(2)
    mortal.worker.kill()
    mortal.worker.start()
    result = await mortal.client.wait(key, ticket.message_id, timeout=TIMEOUT)
    assert (result.state, result.text) == (TurnState.COMPLETED, "in the end")
    assert [step.attempts for step in await watching.step_rows(mortal, key)] == [2]
    await whole(mortal, key)
