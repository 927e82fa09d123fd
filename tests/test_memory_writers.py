"""Many write to one memory, die, fork and run out of disk: nothing that was stored is lost, and
nobody waits for ever.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.domain.errors import Unavailable
from perdure.domain.memory import NewEntry, View
from perdure.memory import BUNDLED, HASHING, Memory
from perdure.memory.writer import locked

ROOT = Path(__file__).parent.parent
VIEW = View(tenant="t", agent="main")


def opened(place: Path, embedder: str = HASHING) -> Memory:
    return Memory(str(place / "memory"), embedder, place / "locks")


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Memory]:
    one = opened(tmp_path)
    yield one
    await one.close()


def writer(place: Path, names: str, count: int, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.memory_writer", str(place), str(count), names, *more],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def new(content: str) -> NewEntry:
    return NewEntry(tenant="t", agent="main", content=content)


async def ids(memory: Memory) -> set[str]:
    return {entry.id for entry in (await memory.browse(VIEW, limit=1_000)).entries}


async def test_eight_writers_at_once_lose_nothing(memory: Memory, tmp_path: Path) -> None:
    # A process takes seconds to import everything: half of them share theirs with another.
    writers = [writer(tmp_path, f"writer{n},writer{n + 4}", 6) for n in range(4)]
    told = [await asyncio.to_thread(one.communicate, timeout=120) for one in writers]
    assert [one.returncode for one in writers] == [0] * 4
    said = {line for out, _ in told for line in out.split()}
    assert len(said) == 48
    assert await ids(memory) == said
    for name in ("writer0", "writer7"):
        assert (await memory.search(VIEW, f'"{name}"')).total == 6


async def test_a_killed_writer_leaves_whole_entries_and_no_lock(
    memory: Memory, tmp_path: Path
) -> None:
    one = writer(tmp_path, "victim", 10_000)
    assert one.stdout is not None
    said = [(await asyncio.to_thread(one.stdout.readline)).strip() for _ in range(5)]
    one.kill()
    rest, _ = await asyncio.to_thread(one.communicate)
    said += rest.split()
    # The last line may be cut; what it names is stored all the same.
    whole = {line for line in said if len(line) == len(said[0])}
    (stored,) = await asyncio.wait_for(memory.store(new("after the kill")), 60)
    found = await ids(memory)
    assert whole | {stored.id} <= found
    # At most the one that was under way when it died was not told.
    assert len(found) <= len(whole) + 2


def test_two_event_loops_share_one_memory(tmp_path: Path) -> None:
    memory = opened(tmp_path)

    async def use(name: str) -> int:
        for number in range(5):
            await memory.store(new(f"{name} says {number}"))
            await memory.search(VIEW, name)
        return (await memory.search(VIEW, f'"{name}"')).total

    totals: dict[str, int] = {}
    threads = [
        threading.Thread(target=lambda name=name: totals.update({name: asyncio.run(use(name))}))
        for name in ("first", "second")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert totals == {"first": 5, "second": 5}
    asyncio.run(memory.close())


@pytest.mark.parametrize("embedder", [HASHING, BUNDLED])
def test_a_forked_worker_goes_on(tmp_path: Path, embedder: str) -> None:
    memory = opened(tmp_path, embedder)
    asyncio.run(memory.store(new("The parent was here."), new("And it said a second thing.")))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # LanceDB's own, at every fork
        child = os.fork()
    if child == 0:
        code = 1
        try:
            asyncio.run(memory.store(new("The child was here.")))
            found = asyncio.run(memory.search(VIEW, "parent", 5))
            code = 0 if found.total == 3 and found.note is None else 2
        finally:
            os._exit(code)
    assert _exit_code(child) == 0
    assert asyncio.run(memory.search(VIEW, "child", 5)).total == 3
    asyncio.run(memory.close())


def _exit_code(child: int, timeout: float = 60) -> int | None:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


async def test_a_full_disk_is_told_and_what_was_stored_is_still_there(
    memory: Memory, tmp_path: Path
) -> None:
    await memory.store(*(new(f"before {n}") for n in range(20)))
    before = await ids(memory)
    full = writer(tmp_path, "full", 1, "2000")
    out, _ = await asyncio.to_thread(full.communicate, timeout=60)
    assert full.returncode == 3, out
    assert out.startswith("refused: unavailable: The memory cannot be written:")
    fresh = opened(tmp_path)
    assert await ids(fresh) == before
    assert (await fresh.search(VIEW, "before", 50)).total == 20
    (stored,) = await fresh.store(new("after there was room again"))
    assert await ids(memory) == before | {stored.id}
    await fresh.close()


def test_a_lock_that_is_held_too_long_is_told_not_waited_for(tmp_path: Path) -> None:
    place = tmp_path / "t.lock"
    told = pytest.raises(Unavailable, match="writes to the memory for more than")
    with locked(place), told, locked(place, patience=0.05):
        raise AssertionError("it is held")
    with locked(place, patience=0.05):
        pass


async def test_looking_into_an_empty_memory_makes_nothing(memory: Memory, tmp_path: Path) -> None:
    assert (await memory.search(VIEW, "anything")).total == 0
    assert (await memory.stats(VIEW)).entries == 0
    assert await memory.tenants() == []
    assert os.listdir(tmp_path) == []
