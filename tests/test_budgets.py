"""Budgets in the store: shared by a tree, reserved by the steps that are under way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.domain.errors import LimitExceeded
from perdure.domain.limits import Limits
from perdure.domain.messages import Usage
from perdure.domain.steps import OpenSession
from perdure.store import Store
from perdure.store.budgets import Left, Need
from tests.support.conversations import opened
from tests.support.spawning import TOP, spawn

LIMITS = Limits(run_tokens=10_000, run_cost=1.0)


@pytest.fixture
async def store(tmp_path: Path, store_url: str) -> AsyncIterator[Store]:
    async with opened(tmp_path, store_url) as store:
        await store.sessions.open(OpenSession(session_key=TOP, agent="main"))
        yield store


async def test_steps_side_by_side_share_what_is_left(store: Store) -> None:
    top = (await spawn(store, limits=LIMITS)).run
    one, two = [(await spawn(store, top.session_key, n, 2, LIMITS)).run for n in (0, 1)]
    need = Need(tokens=6_000, cost=0.2)
    assert (await store.budgets.reserve(one.session_key, need)).holds(need)
    left = await store.budgets.reserve(two.session_key, need)
    assert left == Left(tokens=4_000, cost=0.8)
    assert not left.holds(need)
    # Asked again, as after a crash, a step's reserve takes the place of its own.
    assert (await store.budgets.reserve(one.session_key, need)).holds(need)

    await store.run_outcomes.spend(one.session_key, Usage(input_tokens=900, output_tokens=100))
    await store.budgets.release(one.session_key)
    assert (await store.budgets.reserve(two.session_key, need)).holds(need)
    assert await store.budgets.reserve(top.session_key, need) == Left(tokens=3_000, cost=0.8)


async def test_a_run_without_a_budget_has_no_bound_and_one_below_it_has_its_own(
    store: Store,
) -> None:
    free = (await spawn(store)).run
    bound = (await spawn(store, free.session_key, depth=2, limits=LIMITS)).run
    need = Need(tokens=20_000)
    assert await store.budgets.reserve(free.session_key, need) == Left()
    assert await store.budgets.reserve(bound.session_key, need) == Left(tokens=10_000, cost=1.0)
    assert await store.budgets.reserve(TOP, need) == Left()


async def test_where_no_price_is_known_what_was_spent_is_the_bound(store: Store) -> None:
    run = (await spawn(store, limits=Limits(run_cost=1.0))).run
    need = Need(tokens=1, cost=None)
    assert (await store.budgets.reserve(run.session_key, need)).holds(need)
    await store.run_outcomes.spend(run.session_key, Usage(cost=1.0))
    assert not (await store.budgets.reserve(run.session_key, need)).holds(need)


async def test_nothing_is_spawned_where_nothing_is_left(store: Store) -> None:
    run = (await spawn(store, limits=LIMITS)).run
    await store.run_outcomes.spend(run.session_key, Usage(input_tokens=4_000))
    child = (await spawn(store, run.session_key, depth=2, limits=LIMITS)).run
    assert (child.token_budget, child.cost_budget) == (6_000, 1.0)
    await store.run_outcomes.spend(child.session_key, Usage(input_tokens=7_000))
    with pytest.raises(LimitExceeded, match=r"tokens .* none are left"):
        await spawn(store, run.session_key, 1, 2, LIMITS)
