"""What a context costs as its session grows: assembly, sweeps, search, expansion, and 200 needles.

Run with `python -m bench.context [--quick]`. One session grows to 500,000 messages, swept as it
goes; at each size its context is assembled as steps assemble it, searched and expanded with the
context tools, and assembled once more by reading the whole transcript, for comparison. Then 200
strings are looked for in a second session of five million tokens. Other work on the machine shows
in the times: for assembly the CPU time stands beside them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from sqlalchemy import Connection, select

from bench.corpus import Corpus
from bench.growing import AGENT, Home, Session
from bench.measure import keep, p50, p95
from bench.needles import Field
from perdure.context import View, assemble, assemble_view
from perdure.domain.messages import Message
from perdure.store.rows import message_of
from perdure.store.tables import messages
from perdure.store.tails import Tails
from perdure.tools.context import CtxExpand, CtxSearch

SIZES = (1_000, 10_000, 100_000, 500_000)
#: The history's share of a window of 200,000 tokens, beside instructions and tools.
BUDGET = 176_000
#: The same for the session with the needles: a small window makes the DAG deep.
NEEDLE_BUDGET = 26_000
NEEDLE_TOKENS = 5_000_000
#: The size of a context for which DESIGN sets the budget.
ITEMS = 300


class Bench:
    """A home with one session that grows, and what was measured so far."""

    def __init__(self, home: Home, session: Session, repeats: int) -> None:
        self.home = home
        self.session = session
        self.repeats = repeats
        self.results: dict[str, Any] = {}
        self.corpus = Corpus()
        self.texts = self.corpus.messages(10**9)
        self._some = 0

    async def fill(self, size: int) -> None:
        """Let there be `size` messages."""
        session, started, already = self.session, time.perf_counter(), self.session.count
        while session.count < size:
            await self._turn()
        await session.written()
        seconds = time.perf_counter() - started
        self.results[f"{size:,} messages"] = {
            "grown, messages/s": round((session.count - already) / seconds),
            "bytes a message, text": round(session.text_bytes / session.count),
            "bytes a message, database": round(self.home.bytes / session.count),
        }

    async def measure(self, size: int) -> None:
        """All that there is to say of this size."""
        told = self.results[f"{size:,} messages"]
        told |= await self._dag()
        told |= await self._assembly()
        told |= await self._searches()
        told |= await self._expansions()
        told["load average, 1 minute"] = round(os.getloadavg()[0], 1)

    async def needles(self, tokens: int) -> None:
        """Plant and recover."""
        session = await Session.open(self.home, "default:needles", NEEDLE_BUDGET)
        field = Field(session)
        await field.plant(tokens, self.texts)
        tree = await self.home.store.nodes.tree(session.key)
        summaries = [one for one in tree.summaries if one.until_turn is None]
        self.results["needles"] = {
            "planted": len(field.planted),
            "tokens of the session": session.raw_tokens,
            "messages of the session": session.count,
            "deepest summary": max(one.depth for one in tree.summaries),
            "summaries in the context": len(summaries),
            "recovered by search": await field.found_by_search(),
            "recovered by expansion": await field.found_by_expansion(),
        }

    async def _turn(self) -> None:
        """Half of all turns call a tool."""
        result = next(self.texts) if self.session.turn % 2 else None
        await self.session.say(text=next(self.texts), answer=next(self.texts), result=result)

    async def _dag(self) -> dict[str, Any]:
        session, store = self.session, self.home.store
        tree = await store.nodes.tree(session.key)
        seen = [one for one in tree.summaries if one.until_turn is None]
        covered = sum(one.messages for one in seen)
        calls, swept = await session.model_calls(), session.swept
        sources = sum(one.source_tokens for one in tree.summaries)
        return {
            "summaries": len(tree.summaries),
            "deepest summary": max((one.depth for one in tree.summaries), default=None),
            "items in the context": len(seen) + session.count - covered,
            "of these summaries": len(seen),
            "peak context, tokens": swept.peak_tokens,
            "peak context ÷ threshold": round(swept.peak_tokens / session.threshold, 3),
            "sweeps a turn": round(swept.sweeps / session.turn, 4),
            "summariser calls a turn": round(calls / session.turn, 4),
            "summariser input ÷ raw, sources": _share(sources, session.raw_tokens),
            "summariser input ÷ raw, whole prompts": _share(
                4 * await session.prompt_tokens(), session.characters
            ),
            "s a sweep, rehearsal model": _share(swept.seconds, swept.sweeps),
        }

    async def _assembly(self) -> dict[str, Any]:
        """As the steps of the next turns make it; then as a worker that has just started."""
        steps = [await self._timed_step() for _ in range(self.repeats)]
        items = await self._grown_to_some()
        cold = [await self._timed(self._assemble_cold) for _ in range(self.repeats)]
        self._some = await self._budget_of_some()
        some = [await self._timed(self._assemble_some) for _ in range(self.repeats)]
        whole = [await self._timed(self._assemble_whole) for _ in range(max(3, self.repeats // 20))]
        return {
            "assembly, next step": _told(steps),
            "items in the context, worker just started": items,
            "assembly, worker just started": _told(cold),
            f"assembly, {ITEMS} items read anew": _told(some),
            "assembly from the whole transcript, beside it": _told(whole),
            "a look what a sweep would do": _told(
                [await self._timed(self._look) for _ in range(self.repeats)]
            ),
        }

    async def _grown_to_some(self) -> int:
        """Let the context have `ITEMS` items or more, as it has before every few sweeps."""
        session, store = self.session, self.home.store
        while True:
            seen = await store.summaries.view(session.key, 0, session.turn + 1)
            items = len(seen) + session.count - sum(one.messages for one in seen)
            if items >= ITEMS:
                return items
            await self._turn()
            await session.written()

    async def _timed_step(self) -> tuple[float, float]:
        await self._turn()
        await self.session.written()
        return await self._timed(self._assemble)

    async def _assemble(self) -> None:
        settings = self.home.settings.agent(AGENT)
        member = await self.home.roster.of(self.session.key, AGENT)
        step, begun = self.session.step(), self.session.begun()
        context = await self.home.contexts.of(step, begun, settings, member.toolbox)
        assert len(context.messages) > self.home.settings.context.fresh_tail

    async def _assemble_cold(self) -> None:
        self.home.store.tails = Tails(self.home.store.database)
        await self._assemble()

    async def _assemble_some(self) -> None:
        """The newest `ITEMS` messages and summaries, from the database."""
        view = await self._view(Tails(self.home.store.database), self._some)
        assemble_view(view, self._some)

    async def _view(self, tails: Tails, budget: int) -> View:
        session = self.session
        return await tails.view(session.key, session.begun(), budget=budget, turn=session.turn + 1)

    async def _budget_of_some(self) -> int:
        """The budget into which the newest `ITEMS` messages and summaries fit."""
        view = await self._view(Tails(self.home.store.database), BUDGET)
        raw = view.groups.messages(0)[len(view.summaries) - ITEMS :]
        return sum(one.tokens for one in (*raw, *view.summaries))

    async def _assemble_whole(self) -> None:
        transcript = await self.home.store.database.read(_whole, self.session.key)
        assemble(transcript, BUDGET)

    async def _look(self) -> None:
        """What a step past the threshold does besides."""
        await self.home.compaction.due(self.session.key, AGENT, BUDGET)

    async def _searches(self) -> dict[str, Any]:
        words, signs = self.corpus.words, self.corpus.ideographs
        kinds: dict[str, Callable[[int], str]] = {
            "selective word": lambda n: words[8_000 + 97 * n],
            "common word": lambda n: words[n],
            "two common words": lambda n: f"{words[n]} {words[n + 7]}",
            "selective phrase": lambda n: f'"{words[n]} {words[900 + 7 * n]}"',
            "CJK, one common": lambda n: signs[n],
            "missing word": lambda n: f"{words[5_000 + 31 * n]}{words[5_050 + 31 * n]}zq",
            "part of a word": lambda n: self._long(n)[1:],
        }
        return {
            f"ctx_search, {name}": _told(
                [await self._searched(ask(n)) for n in range(self.repeats)]
            )
            for name, ask in kinds.items()
        }

    async def _searched(self, query: str) -> tuple[float, float]:
        return await self._timed(lambda: self.session.call(CtxSearch(query=query)))

    def _long(self, number: int) -> str:
        return next(word for word in self.corpus.words[5_000 + 31 * number :] if len(word) >= 6)

    async def _expansions(self) -> dict[str, Any]:
        """A leaf, and the summary in the context that stands for most."""
        session, store = self.session, self.home.store
        seen = await store.summaries.view(session.key, 0, session.turn + 1)
        if not seen:
            return {}
        told = {}
        largest = max(seen, key=lambda one: one.messages)
        leaf = next(one for one in (await store.nodes.tree(session.key)).summaries if not one.depth)
        for name, summary in (("a leaf", leaf), ("the largest in the context", largest)):
            times = []
            for _ in range(3):
                started = time.perf_counter()
                expanded = await session.call(CtxExpand(summary_id=summary.id))
                times.append(time.perf_counter() - started)
                assert (expanded.messages, expanded.unrecoverable) == (summary.messages, 0)
            told[f"ctx_expand, {name}"] = {
                "depth": summary.depth,
                "messages": summary.messages,
                "messages/s": round(summary.messages / p50(times)),
            }
        return told

    async def _timed(self, action: Callable[[], Awaitable[Any]]) -> tuple[float, float]:
        """Milliseconds by the clock, and of this process's CPU time."""
        clock, cpu = time.perf_counter(), time.process_time()
        await action()
        return (time.perf_counter() - clock) * 1000, (time.process_time() - cpu) * 1000


def _told(times: list[tuple[float, float]]) -> dict[str, float]:
    clock, cpu = zip(*times, strict=True)
    return {
        "p50 ms": round(p50(clock), 1),
        "p95 ms": round(p95(clock), 1),
        "CPU p50 ms": round(p50(cpu), 1),
        "CPU p95 ms": round(p95(cpu), 1),
    }


def _share(part: float, whole: float) -> float | None:
    return round(part / whole, 3) if whole else None


def _whole(connection: Connection, key: str) -> list[Message]:
    query = select(messages).where(messages.c.session_key == key).order_by(messages.c.seq)
    return [message_of(row) for row in connection.execute(query)]


async def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="10 k messages, a tenth of the needles' tokens"
    )
    arguments = parser.parse_args()
    sizes, repeats = (SIZES[:2], 20) if arguments.quick else (SIZES, 100)
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        home = await Home.open(Path(folder))
        try:
            bench = Bench(home, await Session.open(home, "default:long", BUDGET), repeats)
            # As a worker does with what it has loaded.
            gc.collect()
            gc.freeze()
            for size in sizes:
                await bench.fill(size)
                await bench.measure(size)
            await bench.needles(NEEDLE_TOKENS // 10 if arguments.quick else NEEDLE_TOKENS)
        finally:
            await home.store.close()
    _print(bench.results)
    if not arguments.quick:
        print(keep("context", bench.results))


def _print(results: dict[str, Any]) -> None:
    needles = results["needles"]
    sizes = {name: told for name, told in results.items() if told is not needles}
    table = Table("measure", *sizes)
    for name in list(sizes.values())[-1]:
        table.add_row(name, *(_cell(told.get(name)) for told in sizes.values()))
    Console().print(table)
    Console().print(f"needles: {needles}")


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return " / ".join(str(one) for one in value.values())
    return "" if value is None else f"{value:,}"


if __name__ == "__main__":
    asyncio.run(main())
