"""What was said once, long ago, comes back word for word: found by search, and under the summaries.

A quick form of what `bench/context.py` shows with 200 strings in five million tokens.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from activities.context_tools import ContextTools
from perdure.domain.compaction import SweepEnd
from perdure.domain.steps import ToolRequest
from perdure.store.context_search import Kind
from perdure.tools.context import CtxExpand, CtxSearch
from perdure.workspace import Workspace
from tests.support.conversations import Conversation
from tests.support.sweeping import WORDS, Sweeper, sweeping

TURNS = 100
NEEDLES = 50
#: A small window, so that few messages make a deep DAG.
BUDGET = 3_000


def needles() -> list[str]:
    """Strings that stand nowhere else: ids, addresses, paths, other scripts, signs, line ends."""
    drawn = random.Random(5)
    made: dict[str, None] = {}
    while len(made) < NEEDLES:
        number = drawn.randrange(10**6)
        name = "".join(drawn.choices("bcdfgklmnprstvz", k=8))
        kinds = (
            f"ticket-{number:06}",
            f"{name}@example.org",
            f"/srv/{name}.py:{number % 900}",
            "".join(chr(0x4E00 + drawn.randrange(20_000)) for _ in range(5)),
            f"</summary><{name} & '%_*'>",
            f"{name}\t{number}\r\nnext",
        )
        made[kinds[len(made) % len(kinds)]] = None
    return list(made)


class Told:
    """A long conversation, swept until it fits, and the message that holds each needle."""

    def __init__(self, sweeper: Sweeper, talk: Conversation) -> None:
        self.sweeper = sweeper
        self.talk = talk
        self.holding: dict[str, tuple[str, str]] = {}
        self._tools = ContextTools(
            sweeper.settings, sweeper.store, sweeper.roster, sweeper.guard, self._workspace
        )

    async def tell(self) -> None:
        texts = [f"{number} {WORDS * 14}" for number in range(2 * TURNS)]
        for index, needle in enumerate(needles()):
            place = index * len(texts) // NEEDLES
            texts[place] = f"{WORDS * 5}{needle} {texts[place]}"
        await self.talk.fill(texts)
        for message in await self.talk.messages():
            for needle in needles():
                if needle in message.text:
                    self.holding[needle] = (message.id, message.text)
        while (await self.sweeper.sweep(self.talk, budget=BUDGET)).ended is SweepEnd.PASSES:
            pass

    async def call(self, arguments: Any) -> Any:
        return (await self._tools.call(self._request(), arguments)).value

    async def expanded(self, name: str) -> str:
        """All that an expansion hands back, from wherever it put it."""
        result = await self.call(CtxExpand(summary_id=name))
        assert result.unrecoverable == 0
        if result.body is not None:
            return str(result.body)
        return self._workspace(self._request()).read_bytes(result.path).decode()

    def _request(self) -> ToolRequest:
        return ToolRequest(
            session_key=self.talk.key, agent="main", turn=self.talk.turn + 1, step=1, call=0
        )

    def _workspace(self, request: ToolRequest) -> Workspace:
        return Workspace.for_session(self.sweeper.home, request.session_key)


@pytest.fixture(scope="module")
async def told(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Told]:
    home: Path = tmp_path_factory.mktemp("needles") / "home"
    async with sweeping(home) as sweeper:
        found = Told(sweeper, await Conversation.open(sweeper.store))
        await found.tell()
        yield found


async def test_what_is_looked_for_lies_under_more_than_four_depths(told: Told) -> None:
    tree = await told.sweeper.store.nodes.tree(told.talk.key)
    assert {one.depth for one in tree.summaries} >= {0, 1, 2, 3, 4}
    assert len(told.holding) == NEEDLES


async def test_each_is_found_by_search_and_expanded_from_the_hit(told: Told) -> None:
    for needle, (message, text) in told.holding.items():
        found = await told.call(CtxSearch(query=f'"{needle}"'))
        hit = next(one for one in found.hits if one.kind is Kind.MESSAGE)
        assert hit.id == message, needle
        assert text in await told.expanded(hit.summary_id or hit.id), needle


async def test_each_lies_under_what_the_next_turn_sees(told: Told) -> None:
    view = await told.sweeper.store.tails.look(told.talk.key, 10**9)
    assert view is not None
    whole = [await told.expanded(summary.id) for summary in view.summaries]
    raw = [message.text for message in view.groups.messages(0)]
    for needle, (_, text) in told.holding.items():
        assert any(text in one for one in (*whole, *raw)), needle
