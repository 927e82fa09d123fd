"""What delegating costs: the time to all results, a kill, and the way back after SIGKILL.

Run with `python -m bench.delegation [--quick]`. A child's work is one model step of two seconds, so
the ideal is two seconds for any number of children side by side. One tuned server, one worker
process, everything of it on this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select

from bench.measure import p50, p95, report, times_of
from gateway.client import SessionClient
from gateway.local import Stack
from perdure.config import load_settings
from perdure.store.delegation_tables import runs
from perdure.store.run_views import RunView
from perdure.store.tables import steps

CHILDREN = (1, 10, 50)
#: Seconds of work of one child.
WORK = 2.0
#: Seconds of work of a child around which something is killed.
LONG = 5.0
TIMEOUT = 600
CONFIG = """
[agents.main]
tools = ["subagents"]
[limits]
children = 100
"""
_BEGUN = runs.c.session_key.in_(select(steps.c.session_key))
_HANDED = runs.c.handed_at.is_not(None)
_ENDED = runs.c.ended_at.is_not(None)


class Bench:
    """A stack of processes, a client on it, and what was measured so far."""

    def __init__(self, stack: Stack, client: SessionClient, repeats: int) -> None:
        self.stack = stack
        self.client = client
        self.repeats = repeats
        self.results: dict[str, Any] = {}

    async def round_trip(self) -> None:
        """A child that answers at once, beside a turn without one."""
        key = _key("trip")
        for name, script in (
            ("plain turn, ms", "/say hello"),
            ("turn with a child that answers at once, ms", f"{_spawn('/say hi')}\n/say done"),
        ):

            async def turn(script: str = script) -> None:
                await self.client.ask(key, script, timeout=TIMEOUT)

            await times_of(turn, 2)
            times = await times_of(turn, 10 * self.repeats)
            self.results[name] = {"p50": round(p50(times), 1), "p95": round(p95(times), 1)}

    async def fan_out(self, children: int) -> None:
        """From the order to all results: as the results of the calls that wait for them, and as
        messages."""
        for how in ("awaited", "as messages"):
            times = []
            busy = self._cpu()
            for _ in range(self.repeats):
                order = [_spawn(f"/sleep {WORK}", later=how != "awaited")] * children
                key, started = _key("fan"), time.perf_counter()
                await self.client.send(key, _script(order))
                await self._until(key, children, _HANDED)
                times.append(time.perf_counter() - started)
            name = f"{children} children, all results, {how}"
            self.note(f"{name}, s", times, WORK)
            for process, seconds in self._cpu().items():
                spent = (seconds - busy[process]) / self.repeats / children
                self.results[f"{name}, CPU ms of the {process} a child"] = round(spent * 1_000)

    async def kill(self) -> None:
        """From the kill of a tree of three, in model calls of a minute, to the end of all."""
        times = []
        deep = _spawn(_script([_spawn("/sleep 60", later=True), "---", "/sleep 60"]), later=True)
        for _ in range(3 * self.repeats):
            key = _key("kill")
            await self.client.send(key, _spawn(_script([deep, "---", "/sleep 60"]), later=True))
            tree: Sequence[RunView] = ()
            while len(tree) < 3:
                await asyncio.sleep(0.05)
                tree = (await self.client.runs.list(key)).runs
            for run in tree:
                await self._until(run.parent_key, 1, _BEGUN)
            started = time.perf_counter()
            await self.client.runs.kill(tree[0].run_id)
            for run in tree:
                await self._until(run.parent_key, 1, _ENDED)
            times.append(time.perf_counter() - started)
        self.note("a tree of 3 in model calls, killed until ended, s", times, 0.0)

    async def killed(self, server: bool) -> float:
        """Seconds from SIGKILL, with ten children in a step of `LONG` seconds, to all ten results.
        What died is started again by its supervisor, which is missed when its heartbeats are, and
        the step is taken anew."""
        key = _key("killed")
        await self.client.send(key, _script([_spawn(f"/sleep {LONG}", later=True)] * 10))
        await self._until(key, 10, _BEGUN)
        await asyncio.sleep(1)
        pids = self.stack.info.pids
        for pid in (*([pids.temporal] if server and pids.temporal else []), *pids.workers):
            os.kill(pid, signal.SIGKILL)
        started = time.perf_counter()
        await self._until(key, 10, _HANDED)
        return time.perf_counter() - started

    def note(self, name: str, times: Sequence[float], ideal: float) -> None:
        """Keep what was measured, beside the ideal."""
        self.results[name] = {
            "median": round(p50(times), 2),
            "worst": round(max(times), 2),
            "ideal": ideal,
        }

    def _cpu(self) -> dict[str, float]:
        """Seconds of processor that have gone into each process: other work does not show here."""
        pids = self.stack.info.pids
        assert pids.temporal is not None
        found = {}
        for name, pid in (("server", pids.temporal), ("worker", pids.workers[0])):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found[name] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return found

    async def _until(self, key: str, count: int, condition: ColumnElement[bool]) -> None:
        """Wait until so many runs of a session are as `condition` says."""
        query = select(func.count()).where(runs.c.parent_key == key, condition)

        def found(connection: Connection) -> int:
            return int(connection.scalar(query) or 0)

        while await self.client.store.database.read(found) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def _key(name: str) -> str:
    return f"default:{name}-{time.time_ns()}"


def _spawn(task: str, *, later: bool = False) -> str:
    arguments = {"task": task, **({"async": True} if later else {})}
    return f"/sessions_spawn {json.dumps(arguments)}"


def _script(lines: Sequence[str]) -> str:
    return "\n".join([*lines, "/say done"])


@asynccontextmanager
async def running(repeats: int) -> AsyncIterator[Bench]:
    """A bench on a stack of its own."""
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        home = Path(folder)
        (home / "perdure.toml").write_text(CONFIG)
        async with Stack(load_settings(home, {}), tell=lambda _: None) as stack:
            settings = load_settings(home, {"PERDURE_TEMPORAL_ADDRESS": stack.info.temporal})
            async with SessionClient.connect(settings) as client:
                yield Bench(stack, client, repeats)


async def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="each once, and nothing is kept")
    arguments = parser.parse_args()
    repeats = 1 if arguments.quick else 5
    load = os.getloadavg()[0]
    async with running(repeats) as bench:
        await bench.round_trip()
        for children in CHILDREN:
            await bench.fan_out(children)
        await bench.kill()
    for name, server in (("worker", False), ("worker and server", True)):
        times = []
        for _ in range(repeats):
            # A supervisor waits longer each time for what dies often.
            async with running(1) as another:
                await another.round_trip()
                times.append(await another.killed(server))
        bench.note(f"10 children in a step, {name} killed -9, until all, s", times, LONG)
    bench.results["load average before, 1 minute"] = round(load, 1)
    report("delegation", bench.results, quick=arguments.quick)


if __name__ == "__main__":
    asyncio.run(main())
