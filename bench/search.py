"""What a search costs: p50 and p95 at 10 k, 100 k and 500 k messages, beside a plain LIKE scan.

Run with `python -m bench.search [--quick]`. The messages lie in a store as sessions write them, a
tenth of them in sessions that the reader may not see, and are searched as sessions search them. A
query is asked once, so nothing but the database's own pages is warm.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from sqlalchemy import Connection, insert, text

from bench.corpus import Corpus
from bench.measure import keep, p50, p95
from perdure.domain.keys import Kind, SessionKey
from perdure.domain.labels import Label
from perdure.domain.messages import Role
from perdure.domain.states import SessionState
from perdure.domain.steps import OpenSession
from perdure.search import parse
from perdure.store import Store
from perdure.store.clock import now
from perdure.store.readers import Reader
from perdure.store.session_writer import SessionWriter
from perdure.store.tables import messages, sessions

SIZES = (10_000, 100_000, 500_000)
BUDGET = 25.0
SESSIONS = 2_000
READER = Reader.session("default:reader", Label.CONFIDENTIAL)
_ROLES = (Role.USER, Role.ASSISTANT, Role.TOOL)

_LIKE = text(
    "SELECT m.* FROM messages m JOIN sessions s ON s.session_key = m.session_key "
    "WHERE m.text LIKE :pattern AND m.label <> 'RESTRICTED' AND s.label <> 'RESTRICTED' "
    "AND s.tenant = 'default' ORDER BY m.at DESC LIMIT 10"
)


class Bench:
    """A store that grows, and what was measured so far."""

    def __init__(self, store: Store, repeats: int) -> None:
        self.store = store
        self.repeats = repeats
        self.results: dict[str, Any] = {}
        self._corpus = Corpus()
        self._random = random.Random(2)
        self._texts = self._corpus.messages(SIZES[-1])
        self._seqs = [0] * SESSIONS
        self._count = 0

    async def fill(self, size: int) -> None:
        """Let there be `size` messages."""
        if not self._count:
            await self.store.database.write(_open)
        started, before = time.perf_counter(), self._count
        while self._count < size:
            rows = list(self._rows(min(5_000, size - self._count)))
            await self.store.database.write(_append, rows)
        seconds = time.perf_counter() - started
        texts, index, file = await self.store.database.read(_sizes)
        self.results[f"{size:,} messages"] = {
            "appended, messages/s": round((size - before) / seconds),
            "database, MB": round(file / 1e6),
            "index ÷ text, bytes": round(index / texts, 2),
        }

    def _rows(self, count: int) -> Iterator[dict[str, Any]]:
        begun = now() - timedelta(days=400)
        for _ in range(count):
            # Some sessions say much, most say little.
            session = int(SESSIONS * self._random.random() ** 2)
            self._seqs[session] += 1
            self._count += 1
            yield {
                "session_key": _key(session),
                "seq": self._seqs[session],
                "id": f"msg_{self._count}",
                "epoch": 0,
                "turn": 1,
                "step": 1,
                "role": self._random.choice(_ROLES),
                "text": next(self._texts),
                "tool_calls": [],
                "label": Label.PUBLIC,
                "tokens": 1,
                "at": begun + timedelta(minutes=self._count),
            }

    async def measure(self, size: int) -> None:
        """Ask each kind of query, a different one each time."""
        words, characters = self._corpus.words, self._corpus.ideographs
        # Every tenth is hidden.
        longest = max(
            set(range(SESSIONS)) - set(range(0, SESSIONS, 10)), key=self._seqs.__getitem__
        )
        kinds: dict[str, tuple[Callable[[int], str], str | None]] = {
            "selective word": (lambda n: words[8_000 + 97 * n], None),
            "common word": (lambda n: words[n], None),
            "two common words": (lambda n: f"{words[n]} {words[n + 7]}", None),
            "common, one session": (lambda n: words[n], _key(longest)),
            "selective phrase": (lambda n: f'"{words[n]} {words[900 + 7 * n]}"', None),
            "file name": (lambda n: f"{self._file(n)}.py", None),
            "prefix of 5": (lambda n: f"{_long(words, n)[:5]}*", None),
            "CJK, one common": (lambda n: characters[n], None),
            "CJK, one rare": (lambda n: characters[600 + 17 * n], None),
            "CJK, two": (lambda n: characters[n] + characters[20 + 3 * n], None),
            "emoji": (lambda n: "👍🎉🚀"[n % 3], None),
            "missing: a typo": (lambda n: _mistyped(_long(words, n)), None),
            "missing: two words in one": (
                lambda n: f"{_long(words, n)}{_long(words, n + 50)}",
                None,
            ),
            "missing, one session": (lambda n: f"{_long(words, n)}{words[n]}", _key(longest)),
            "part of a word": (lambda n: _long(words, n)[1:], None),
            "all but a common word": (lambda n: f"NOT {words[n]}", None),
        }
        told = self.results[f"{size:,} messages"]
        for name, (query, session) in kinds.items():
            times = [await self._timed(query(number), session) for number in range(self.repeats)]
            told[name] = _told(times)
        times = []
        for number in range(max(3, self.repeats // 8)):
            started = time.perf_counter()
            pattern = f"%{words[8_000 + 97 * number]}%"
            await self.store.database.read(_like, pattern)
            times.append((time.perf_counter() - started) * 1000)
        told["selective word, LIKE scan beside it"] = _told(times)

    def _file(self, number: int) -> str:
        return self._corpus.folders[number % len(self._corpus.folders)]

    async def _timed(self, query: str, session: str | None) -> float:
        started = time.perf_counter()
        await self.store.search.messages(parse(query), READER, session_key=session)
        return (time.perf_counter() - started) * 1000


def _told(times: list[float]) -> dict[str, float]:
    return {"p50 ms": round(p50(times), 2), "p95 ms": round(p95(times), 2)}


def _long(words: list[str], number: int) -> str:
    return next(word for word in words[5_000 + 31 * number :] if len(word) >= 6)


def _mistyped(word: str) -> str:
    return word[:2] + word[3] + word[2] + word[4:]


def _key(session: int) -> str:
    return f"default:user{session}~peer~{session}"


def _open(connection: Connection) -> None:
    rows = [
        {
            "session_key": _key(number),
            "tenant": SessionKey.parse(_key(number)).tenant,
            "user": f"user{number}",
            "kind": Kind.DM,
            "agent": "main",
            "state": SessionState.IDLE,
            "label": Label.PUBLIC if number % 10 else Label.RESTRICTED,
            "created_at": now(),
            "last_activity": now(),
        }
        for number in range(SESSIONS)
    ]
    connection.execute(insert(sessions), rows)


def _append(connection: Connection, rows: list[dict[str, Any]]) -> None:
    connection.execute(insert(messages), rows)


def _sizes(connection: Connection) -> tuple[int, int, int]:
    """Bytes of the texts, of both indexes, of the database."""
    size = "SELECT sum(length(CAST({} AS BLOB))) FROM {}"
    sizes = (size.format("text", "messages"), size.format("block", "search_words_data"))
    texts, words = (int(connection.scalar(text(part)) or 0) for part in sizes)
    in_parts = connection.scalar(text(size.format("block", "search_parts_data")))
    pages = connection.scalar(text("PRAGMA page_count"))
    page = connection.scalar(text("PRAGMA page_size"))
    return texts, words + int(in_parts or 0), int(pages or 0) * int(page or 0)


def _like(connection: Connection, pattern: str) -> int:
    return len(connection.execute(_LIKE, {"pattern": pattern}).all())


async def append(folder: Path, repeats: int) -> dict[str, dict[str, float]]:
    """What one message costs in its transaction, with the index and without."""
    corpus = Corpus(seed=3)
    stores = {name: await Store.open(f"sqlite:///{folder / name}") for name in ("with", "without")}
    times: dict[str, list[float]] = {name: [] for name in stores}
    await stores["without"].database.write(
        lambda connection: connection.execute(text("DROP TRIGGER search_message_added"))
    )
    for store in stores.values():
        await store.sessions.open(OpenSession(session_key=_key(1), agent="main"))
    for number, line in enumerate(corpus.messages(repeats)):
        for name, store in stores.items():
            started = time.perf_counter()
            await store.database.write(_say, number, line)
            times[name].append((time.perf_counter() - started) * 1000)
    for store in stores.values():
        await store.close()
    return {f"append a message, {name} the index": _told(times[name]) for name in times}


def _say(connection: Connection, number: int, line: str) -> None:
    with SessionWriter(connection, _key(1)) as session:
        session.append(
            text=line, id=f"msg_{number}", turn=1, step=0, role=Role.USER, label=Label.PUBLIC
        )


async def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10 k messages and few repeats")
    arguments = parser.parse_args()
    sizes, repeats = (SIZES[:1], 10) if arguments.quick else (SIZES, 60)
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        path = Path(folder) / "perdure.db"
        store = await Store.open(f"sqlite:///{path}")
        try:
            bench = Bench(store, repeats)
            for size in sizes:
                await bench.fill(size)
                await bench.measure(size)
        finally:
            await store.close()
        appended = await append(Path(folder), 40 * repeats)
    _print(bench.results)
    for name, told in appended.items():
        print(f"{name}: p50 {told['p50 ms']} ms, p95 {told['p95 ms']} ms")
    if not arguments.quick:
        print(keep("search", {"budget, p95 ms": BUDGET, **bench.results, **appended}))


def _print(results: dict[str, Any]) -> None:
    table = Table("measure", *results)
    for name in next(iter(results.values())):
        cells = []
        for told in results.values():
            value = told[name]
            both = isinstance(value, dict)
            cells.append(f"{value['p50 ms']} / {value['p95 ms']}" if both else f"{value:,}")
        table.add_row(f"{name}, p50 / p95 ms" if both else name, *cells)
    Console().print(table)


if __name__ == "__main__":
    asyncio.run(main())
