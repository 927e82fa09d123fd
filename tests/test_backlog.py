"""What waits in the store is counted, and its age told, without a look at its words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.domain.envelopes import Envelope
from perdure.domain.limits import Limits
from perdure.domain.runs import EndReason, RunState
from perdure.domain.steps import OpenSession
from perdure.store import Store
from perdure.store.backlog import Backlog
from perdure.store.clock import now
from tests.support.conversations import opened
from tests.support.spawning import TOP, end, spawn


@pytest.fixture
async def store(tmp_path: Path, store_url: str) -> AsyncIterator[Store]:
    async with opened(tmp_path, store_url) as store:
        await store.sessions.open(OpenSession(session_key=TOP, agent="main"))
        yield store


async def test_a_store_in_which_nothing_waits_has_no_backlog(store: Store) -> None:
    assert await store.backlogs.now() == Backlog()


async def test_runs_are_counted_until_they_have_ended(store: Store) -> None:
    limits = Limits(children=1)
    first = await spawn(store, call=0, limits=limits)
    await spawn(store, call=1, limits=limits)
    assert (await store.backlogs.now()).runs == {RunState.RUNNING: 1, RunState.QUEUED: 1}
    await end(store, first.run, EndReason.KILLED)
    assert sum((await store.backlogs.now()).runs.values()) == 1


async def test_waiting_messages_are_counted_and_the_oldest_is_aged(store: Store) -> None:
    for number in range(3):
        envelope = Envelope(message_id=f"m{number}")
        await store.mailbox.post("default:busy", envelope, "words " * 10_000)
    before = await store.backlogs.now()
    since = now()
    await store.mailbox.post("default:other", Envelope(message_id="n"), "more")
    after = await store.backlogs.now()
    assert (before.messages, before.fullest_inbox) == (3, 3)
    assert (after.messages, after.fullest_inbox) == (4, 3)
    assert after.oldest_message > before.oldest_message > 0
    for number in range(3):
        await store.mailbox.withdraw("default:busy", f"m{number}")
    left = await store.backlogs.now()
    assert left.messages == 1
    assert left.oldest_message <= (now() - since).total_seconds(), "the others are older"
