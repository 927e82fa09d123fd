"""What memory finds, how fast, and in how many bytes.

Run with `python -m bench.memory [--quick]`. Recall is measured on conversations with questions and
the ids of the utterances that answer them (LoCoMo: Maharana et al., ACL 2024), read from
`--data FILE` or PERDURE_LOCOMO; without that file on a small generated set, and it says so. Times
are of whole calls; embedding is left out of them by an embedder that answers at once.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import p50, p95, report, times_of
from perdure.domain.memory import NewEntry, View
from perdure.memory import BUNDLED, Embedder, Memory, embedder, ranking

DATA = Path(os.environ.get("PERDURE_LOCOMO", "../shared/data/locomo-dev.json"))
CUTS = (5, 10, 25)
#: By words alone, by meaning alone, and by both.
MODES = {
    "words": {"words": True, "meaning": False},
    "meaning": {"words": False, "meaning": True},
    "both": {"words": True, "meaning": True},
}


class Synthetic:
    """Vectors of 384 dimensions around 200 topics, by a text's hash: no model, no time."""

    name = "synthetic"

    def __init__(self) -> None:
        self._topics = np.random.default_rng(1).standard_normal((200, 384)).astype("float32")

    async def dimension(self) -> int:
        """That of the bundled model."""
        return 384

    async def passages(self, texts: Sequence[str]) -> list[list[float]]:
        """A topic each, and something of its own."""
        return [self._vector(text) for text in texts]

    async def query(self, text: str) -> list[float]:
        """As a passage."""
        return self._vector(text)

    def _vector(self, text: str) -> list[float]:
        seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
        own = np.random.default_rng(seed).standard_normal(384).astype("float32")
        vector = self._topics[seed % 200] + 0.7 * own
        return list((vector / np.linalg.norm(vector)).tolist())


async def recall(home: Path, conversations: list[dict[str, Any]]) -> dict[str, Any]:
    """The share of a question's evidence among the first 5, 10 and 25, by each way of asking."""
    memory = Memory(str(home / "recall"), BUNDLED, home / "locks")
    for number, one in enumerate(conversations):
        entries = [
            NewEntry(
                tenant=f"t{number}",
                agent="main",
                content=f"{utterance['speaker']}: {utterance['text']}",
                key=utterance["id"].replace(":", "/"),
                created_at=_moment(utterance["at"]),
                session_key=f"t{number}:me~thread~{utterance['session']}",
            )
            for utterance in one["utterances"]
        ]
        for start in range(0, len(entries), 200):
            await memory.store(*entries[start : start + 200])
    results: dict[str, Any] = {}
    for neighbours in (False, True):
        for mode, parts in MODES.items():
            share = ranking.LIFT
            ranking.LIFT = share if neighbours else 0.0
            found = [
                await _recall_of(memory, number, one, parts)
                for number, one in enumerate(conversations)
            ]
            ranking.LIFT = share
            name = f"recall, {mode}{', with neighbours' if neighbours else ''}"
            every = np.concatenate(found)
            for column, cut in enumerate(CUTS):
                results[f"{name}, at {cut}"] = round(float(every[:, column].mean()), 3)
            each = [round(float(one[:, 1].mean()), 3) for one in found]
            results[f"{name}, at 10, by conversation"] = each
    await memory.close()
    return results


async def _recall_of(
    memory: Memory, number: int, conversation: dict[str, Any], parts: dict[str, bool]
) -> Any:
    known = {utterance["id"] for utterance in conversation["utterances"]}
    shares = []
    for question in conversation["questions"]:
        wanted = {f"memory/{one.replace(':', '/')}" for one in question["evidence"] if one in known}
        if not wanted:
            continue
        hits = await memory.search(
            View(tenant=f"t{number}", agent="main"), question["question"], 25, **parts
        )
        paths = [hit.path for hit in hits.results]
        shares.append([len(wanted & set(paths[:cut])) / len(wanted) for cut in CUTS])
    return np.array(shares)


def _moment(text: str) -> datetime:
    return datetime.strptime(text, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)


async def speed(home: Path, sizes: Sequence[int], repeats: int) -> dict[str, Any]:
    """Times of storing and searching, and bytes on disk, as the table grows."""
    synthetic: Embedder = Synthetic()
    place = home / "speed"
    memory = Memory(str(place), "synthetic", home / "locks", embedders=lambda _: synthetic)
    words = [f"word{number}" for number in range(30_000)]
    weights = [1 / (rank + 10) for rank in range(len(words))]
    chance = random.Random(1)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    results: dict[str, Any] = {}
    stored = 0

    def entry(number: int) -> NewEntry:
        return NewEntry(
            tenant="speed",
            agent=f"agent{number % 3}",
            content=" ".join(chance.choices(words, weights, k=25)),
            session_key=f"speed:me~thread~{number // 40}",
            created_at=start + timedelta(minutes=number),
            tags=("few",) if number % 1_000 == 7 else (),
        )

    for size in sizes:
        while stored < size:
            count = min(500, size - stored)
            await memory.store(*(entry(stored + one) for one in range(count)))
            stored += count
        await memory.tend("speed")
        name = f"{size:,} entries"
        fresh = iter([entry(stored + one) for one in range(repeats)])
        results |= await _timed(f"{name}, store", lambda of=fresh: memory.store(next(of)), repeats)
        stored += repeats
        results[f"{name}, bytes an entry before compaction"] = _bytes(place) // stored
        view = View(tenant="speed", agent="agent1")
        for kind, of in {
            "search": view,
            "search by a rare tag": view.model_copy(update={"tags": ("few",)}),
        }.items():
            queries = iter([" ".join(chance.choices(words, weights, k=6)) for _ in range(repeats)])

            async def ask(of: View = of, queries: Any = queries) -> None:
                await memory.search(of, next(queries))

            results |= await _timed(f"{name}, {kind}", ask, repeats)
        await memory.tend("speed")
        for shelf in await memory._shelves.visible("speed", view.label):
            await shelf.tend(timedelta(0))
        results[f"{name}, bytes an entry after compaction"] = _bytes(place) // stored
    await memory.close()
    return results


async def embedding(count: int) -> dict[str, Any]:
    """What embedding costs with the bundled model."""
    model = embedder(BUNDLED)
    text = "What one of us said to the other in the kitchen about the plans for next summer. "
    await model.query(text)
    query = await _timed(
        "embedding a question", lambda: model.query("What are the plans for next summer?"), count
    )
    passage = await _timed(
        "embedding an entry of 60 tokens", lambda: model.passages([text * 3]), count
    )
    return query | passage


async def _timed(
    name: str, action: Callable[[], Awaitable[object]], repeats: int
) -> dict[str, Any]:
    """Milliseconds of an action: by the clock, and of this process's CPU, which other load on the
    machine moves less."""
    before = time.process_time()
    times = await times_of(action, repeats)
    cpu = (time.process_time() - before) * 1000 / repeats
    return {f"{name}, ms p50 / p95 / CPU": f"{p50(times):.1f} / {p95(times):.1f} / {cpu:.1f}"}


def _bytes(place: Path) -> int:
    return sum(one.stat().st_size for one in place.rglob("*") if one.is_file())


def _generated() -> list[dict[str, Any]]:
    """Stand-ins for conversations: each fact is said once, and asked for in other words."""
    things = ("bicycle", "piano", "garden", "boat", "camera", "oven", "tent", "lamp")
    verbs = (("bought", "purchase"), ("sold", "sell"), ("lost", "lose"), ("painted", "paint"))
    names = ("Ada", "Ben", "Cleo", "Dan", "Eva")
    said = [(n, v, t) for n in names for v in verbs for t in things]
    random.Random(2).shuffle(said)
    utterances = [
        {
            "id": f"D{number // 20}:{number % 20}",
            "session": number // 20,
            "at": "10:00 am on 3 May, 2026",
            "speaker": name,
            "text": f"Yesterday I {verb[0]} a {thing}, and it was about time.",
        }
        for number, (name, verb, thing) in enumerate(said)
    ]
    questions = [
        {"question": f"What did {n} {v[1]} with the {t}?", "evidence": [utterances[i]["id"]]}
        for i, (n, v, t) in enumerate(said)
    ]
    return [{"conversation": 0, "utterances": utterances, "questions": questions}]


async def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 10,000 entries")
    parser.add_argument("--only", choices=["recall", "speed"])
    parser.add_argument("--data", type=Path, default=DATA)
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        home = Path(folder)
        if arguments.only != "speed":
            there = arguments.data.is_file()
            if not there:
                print(f"There is no {arguments.data}: recall is of a small generated set.")
            results["recall is of"] = "LoCoMo, four conversations" if there else "a generated set"
            found = json.loads(arguments.data.read_text()) if there else _generated()
            results |= await recall(home, found)
        if arguments.only != "recall":
            sizes = (1_000, 10_000) if arguments.quick else (1_000, 10_000, 100_000)
            results |= await speed(home, sizes, 100)
            results |= await embedding(50)
    report("memory", results, quick=arguments.quick, partly=arguments.only is not None, width=120)


if __name__ == "__main__":
    asyncio.run(main())
