"""Tool lists in the store: kept once by their content, pinned once to a turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from perdure.domain.sources import ListedTool, ToolList
from perdure.domain.steps import OpenSession
from perdure.sources.listing import Offered, listing
from perdure.store import Store
from perdure.store.source_tables import tool_lists
from tests.support.conversations import opened

KEY = "default:shopper"


@pytest.fixture
async def store(tmp_path: Path, store_url: str) -> AsyncIterator[Store]:
    async with opened(tmp_path, store_url) as store:
        await store.sessions.open(OpenSession(session_key=KEY, agent="main"))
        yield store


def shop(*names: str) -> ToolList:
    return ToolList(
        server="shop",
        tools=tuple(
            ListedTool(name=name, called=f"shop__{name}", description=name, parameters={})
            for name in names
        ),
    )


async def test_the_first_to_pin_decides_what_the_turn_sees(store: Store) -> None:
    assert await store.tool_lists.pinned(KEY, 1) == ()
    bank = ToolList(server="bank", reachable=False)
    assert await store.tool_lists.pin(KEY, 1, [shop("find"), bank]) == (shop("find"), bank)
    # An attempt that overlaps, and saw another list.
    assert await store.tool_lists.pin(KEY, 1, [shop("book")]) == (bank, shop("find"))
    assert await store.tool_lists.pinned(KEY, 1) == (bank, shop("find"))


async def test_a_list_is_kept_once_and_the_newest_turn_is_found_without_its_number(
    store: Store,
) -> None:
    for turn, listed in enumerate([shop("a"), shop("a"), shop("b"), shop("a")], 1):
        await store.tool_lists.pin(KEY, turn, [listed])
    assert await store.tool_lists.pinned(KEY) == (shop("a"),)
    assert await store.tool_lists.pinned(KEY, 3) == (shop("b"),)
    assert await store.tool_lists.pinned("default:nobody") == ()
    kept = await store.database.read(
        lambda connection: connection.execute(
            select(func.count()).select_from(tool_lists)
        ).scalar_one()
    )
    assert kept == 2


async def test_what_was_seen_last_of_a_server_is_what_it_offered_when_it_was_there(
    store: Store,
) -> None:
    assert await store.tool_lists.last_pinned("shop") is None
    await store.tool_lists.pin(KEY, 1, [shop("a")])
    await store.tool_lists.pin(KEY, 2, [ToolList(server="shop", reachable=False)])
    last = await store.tool_lists.last_pinned("shop")
    assert last is not None
    assert last.listed == shop("a")


async def test_whatever_a_server_says_can_be_kept(store: Store) -> None:
    odd = {"properties": {"a\0b\ud800": {"enum": ["\0\ud800"]}}}
    offered = [Offered("x y", "NUL \0, half \ud800", odd), Offered("x\0z", "", {})]
    listed = listing("shop", offered, ("*",))
    assert [tool.name for tool in listed.tools] == ["x y"]
    await store.tool_lists.pin(KEY, 1, [listed])
    assert await store.tool_lists.pinned(KEY, 1) == (listed,)
