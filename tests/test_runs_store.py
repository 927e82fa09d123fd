"""Runs in the store: whatever is asked twice, or at the same moment as something else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from perdure.domain.delegation import Supervise
from perdure.domain.errors import Denied, RateLimited
from perdure.domain.labels import Label
from perdure.domain.limits import Limits
from perdure.domain.runs import EndReason, RunState
from perdure.domain.states import EventKind
from perdure.domain.steps import OpenSession, SessionReset, ToolRequest
from perdure.store import Store
from perdure.store.addressing import Ceilings, Terms
from perdure.store.clock import now
from perdure.store.supervision import Plan
from tests.support.conversations import opened
from tests.support.spawning import TOP, end, order, spawn, steering

ONE = Limits(children=1)


@pytest.fixture
async def store(tmp_path: Path, store_url: str) -> AsyncIterator[Store]:
    async with opened(tmp_path, store_url) as store:
        await store.sessions.open(OpenSession(session_key=TOP, agent="main"))
        yield store


async def supervise(store: Store, key: str, limits: Limits = ONE) -> Plan:
    request = Supervise(session_key=key, agent="main", label=Label.PUBLIC)
    terms = Terms(limits, lambda _: Ceilings(None, Label.CONFIDENTIAL), 60.0)
    return await store.supervision.plan(request, terms, lambda _: True)


async def kept(store: Store, key: str) -> list[tuple[str, str]]:
    events = await store.outbox.page(key)
    told = [event.payload for event in events if event.kind is EventKind.RUN_KEPT]
    return [(payload["run_id"], payload["reason"]) for payload in told]


async def test_the_same_cause_steers_once_however_soon_it_comes_again(store: Store) -> None:
    """As it does when a worker has died before it could report."""
    run = (await spawn(store)).run
    first = await store.stopping.replace(run.run_id, order(TOP, cause="call"), ONE)
    again = await store.stopping.replace(run.run_id, order(TOP, cause="call"), ONE)
    assert first.successor is not None
    assert again.successor == first.successor
    assert {one.session_key for one in again.wake} == {TOP, run.session_key}
    with pytest.raises(RateLimited):
        await store.stopping.replace(run.run_id, order(TOP, cause="another"), ONE)
    assert (await store.runs.newest(run.run_id)).run_id == first.successor.run_id


async def test_the_same_message_is_injected_once_however_soon_it_comes_again(store: Store) -> None:
    run = (await spawn(store)).run
    for _ in range(2):
        assert (await store.stopping.inject(run.run_id, steering(), "be brief")).wake
    assert await store.mailbox.count(run.session_key) == 2  # the task, and this
    with pytest.raises(RateLimited):
        await store.stopping.inject(run.run_id, steering("steer_2"), "be brief")


async def test_a_call_spawns_one_run(store: Store) -> None:
    first, again = [await spawn(store, limits=ONE) for _ in range(2)]
    assert again.run == first.run
    queued, again = [await spawn(store, call=1, limits=ONE) for _ in range(2)]
    assert (queued.position, again.position) == (1, 1)


async def test_nothing_is_spawned_below_a_run_that_stops(store: Store) -> None:
    run = (await spawn(store)).run
    await spawn(store, run.session_key, depth=2, limits=ONE)
    queued = (await spawn(store, run.session_key, 1, depth=2, limits=ONE)).run
    stopped = await store.stopping.stop(run.run_id, EndReason.KILLED)
    assert stopped.descendants == 2
    assert (await store.runs.get(queued.run_id)).end_reason is EndReason.KILLED
    with pytest.raises(Denied, match="being stopped"):
        await spawn(store, run.session_key, 2, depth=2)
    plan = await supervise(store, run.session_key)
    assert plan.supervision.stop is EndReason.KILLED


async def test_a_run_that_has_something_outstanding_does_not_end_by_itself(store: Store) -> None:
    run = (await spawn(store)).run
    child = (await spawn(store, run.session_key, depth=2)).run
    assert (await end(store, run, EndReason.COMPLETED, final=False)).state is RunState.RUNNING
    await end(store, child, EndReason.COMPLETED)
    # Its result is there, and was not handed over; then it lies in the mailbox.
    assert (await end(store, run, EndReason.COMPLETED, final=False)).state is RunState.RUNNING
    (handed,) = (await supervise(store, run.session_key)).supervision.admit
    assert handed.message_id == f"result_{child.run_id}"
    assert (await end(store, run, EndReason.COMPLETED, final=False)).state is RunState.RUNNING
    await store.mailbox.withdraw(run.session_key, handed.message_id)
    assert (await end(store, run, EndReason.COMPLETED, final=False)).state is RunState.ENDED


async def test_what_a_run_leaves_behind_is_stopped_and_its_results_are_kept(store: Store) -> None:
    """Whether they come before its end or after; what its session spawns later is its own."""
    run = (await spawn(store)).run
    early, late = [(await spawn(store, run.session_key, call, depth=2)).run for call in (0, 1)]
    await end(store, early, EndReason.COMPLETED)
    await supervise(store, run.session_key)
    assert (await end(store, run, EndReason.FAILED)).state is RunState.ENDED
    assert (await store.runs.get(late.run_id)).stop is EndReason.KILLED
    await end(store, late, EndReason.KILLED)
    expected = [(early.run_id, "run ended"), (late.run_id, "run ended")]
    assert await kept(store, run.session_key) == expected
    assert (await supervise(store, run.session_key)).supervision.admit == ()

    own = (await spawn(store, run.session_key, 2, depth=2)).run
    await end(store, own, EndReason.COMPLETED)
    (handed,) = (await supervise(store, run.session_key)).supervision.admit
    assert handed.message_id == f"result_{own.run_id}"


async def test_a_reset_keeps_what_lay_in_the_mailbox(store: Store) -> None:
    run = (await spawn(store)).run
    await end(store, run, EndReason.COMPLETED)
    assert (await supervise(store, TOP)).supervision.admit
    await store.sessions.reset(SessionReset(session_key=TOP, request_id="reset"))
    assert await store.mailbox.count(TOP) == 0
    assert await kept(store, TOP) == [(run.run_id, "reset")]
    assert (await supervise(store, TOP)).supervision.admit == ()


async def test_a_run_that_ends_in_the_queue_is_told_to_whoever_waits_for_it(store: Store) -> None:
    """Also where that is not its parent."""
    limits = Limits(children=1, queue_seconds=0.001)
    run = (await spawn(store)).run
    await spawn(store, run.session_key, 0, depth=2, limits=limits)
    queued = (await spawn(store, run.session_key, 1, depth=2, limits=limits)).run
    call = ToolRequest(session_key=TOP, agent="main", turn=2, step=1, call=0)
    await store.run_waits.open(call, [queued.run_id], now() + timedelta(minutes=1))
    plan = await supervise(store, run.session_key, limits)
    assert (await store.runs.get(queued.run_id)).end_reason is EndReason.FAILED
    assert plan.supervision.dropped
    assert [one.session_key for one in plan.wake] == [TOP]
