"""What a turn costs: time against a bare workflow, history, throughput.

Run with `make bench` or `python -m bench.turns [--quick]`. Both sides use one tuned server, one
worker process each, and take turns in blocks, so that a slow minute hits both.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.bare import QUEUE, Bare
from bench.measure import p50, p95, report, times_of
from gateway.client import SessionClient
from gateway.local import running_server
from perdure.config import load_settings

ROOT = Path(__file__).parent.parent
BLOCKS = 8


class Bench:
    """A server, both workers, a client, and what was measured so far."""

    def __init__(self, client: SessionClient, quick: bool) -> None:
        self.client = client
        self.scale = 0.2 if quick else 1.0
        self.results: dict[str, Any] = {}

    def _repeats(self, full: int) -> int:
        return max(5, int(full * self.scale))

    async def overhead(self) -> None:
        """A plain turn and a tool turn, beside their bare counterparts."""
        bare = await self.client.temporal.start_workflow(
            Bare.run, id=f"bare-{time.time_ns()}", task_queue=QUEUE
        )
        key = f"default:overhead-{time.time_ns()}"
        kinds = {
            "bare, one activity": lambda: bare.execute_update(Bare.turn, 1),
            "plain turn": lambda: self.client.ask(key, "/say hello", timeout=60),
            "bare, three activities": lambda: bare.execute_update(Bare.turn, 3),
            "turn with one short tool": lambda: self.client.ask(
                key, '/ls {"path": "."}\n/say done', timeout=60
            ),
        }
        times: dict[str, list[float]] = {name: [] for name in kinds}
        for action in kinds.values():
            await times_of(action, 5)
        for _ in range(BLOCKS):
            for name, action in kinds.items():
                times[name] += await times_of(action, self._repeats(25))
        for name, measured in times.items():
            self.results[f"{name}, ms p50"] = round(p50(measured), 1)
            self.results[f"{name}, ms p95"] = round(p95(measured), 1)
        plain, tool = p50(times["plain turn"]), p50(times["turn with one short tool"])
        self.results["plain turn ÷ bare, one activity (budget 1.15)"] = round(
            plain / p50(times["bare, one activity"]), 2
        )
        self.results["tool turn ÷ bare, three activities (budget 0.55)"] = round(
            tool / p50(times["bare, three activities"]), 2
        )

    async def history(self) -> None:
        """Events and bytes of history per turn, and the time of a turn, early and late."""
        await self._early_and_late()
        key = f"default:history-{time.time_ns()}"
        done = 0
        for mark in (10, self._repeats(1_000)):
            before = await self._history_of(key) if done else (0, 0)
            await times_of(lambda: self.client.ask(key, "/say hello", timeout=60), mark - done)
            after = await self._history_of(key)
            turns = mark - done
            done = mark
            self.results[f"history per plain turn up to turn {mark}, events"] = round(
                (after[0] - before[0]) / turns, 1
            )
            self.results[f"history per plain turn up to turn {mark}, bytes"] = round(
                (after[1] - before[1]) / turns
            )

    async def _early_and_late(self) -> None:
        """Tool turns about the tenth and about the 400th, of sessions that take turns: what the
        machine does meanwhile hits both."""
        late, mark = f"default:late-{time.time_ns()}", self._repeats(400)
        times: dict[str, list[float]] = {"tool turn 10": [], f"tool turn {mark}": []}

        async def take(key: str, turns: int = 1) -> list[float]:
            return await times_of(
                lambda: self.client.ask(key, '/ls {"path": "."}\n/say done', timeout=60), turns
            )

        await take(late, mark - 5 * BLOCKS // 2)
        for block in range(BLOCKS):
            early = f"default:early-{block}-{time.time_ns()}"
            await take(early, 7)
            for _ in range(5):
                times["tool turn 10"] += await take(early)
                times[f"tool turn {mark}"] += await take(late)
        for name, measured in times.items():
            self.results[f"{name}, ms p50"] = round(p50(measured), 1)
        before, after = map(p50, times.values())
        self.results[f"tool turn {mark} ÷ tool turn 10 (budget 1.1)"] = round(after / before, 2)

    async def _history_of(self, key: str) -> tuple[int, int]:
        """Events and bytes over every run of a session."""
        events = size = 0
        async for run in self.client.temporal.list_workflows(f"WorkflowId = 'session/{key}'"):
            handle = self.client.temporal.get_workflow_handle(run.id, run_id=run.run_id)
            info = (await handle.describe()).raw_description.workflow_execution_info
            events += info.history_length
            size += info.history_size_bytes
        return events, size

    async def throughput(self) -> None:
        """Turns a second with 1, 20 and 100 sessions asking at once."""
        for sessions in (1, 20, 100):
            keys = [f"default:load-{sessions}-{n}-{time.time_ns()}" for n in range(sessions)]
            each = max(3, self._repeats(400) // sessions)

            async def talk(key: str, turns: int) -> None:
                for _ in range(turns):
                    await self.client.ask(key, "/say hello", timeout=120)

            await asyncio.gather(*(talk(key, 1) for key in keys))
            started = time.perf_counter()
            await asyncio.gather(*(talk(key, each) for key in keys))
            rate = sessions * each / (time.perf_counter() - started)
            self.results[f"turns/s, {sessions} sessions"] = round(rate, 1)


async def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the repeats")
    parser.add_argument("--only", choices=["overhead", "history", "throughput"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        home = Path(folder)
        async with running_server(home) as server:
            settings = load_settings(home, {"PERDURE_TEMPORAL_ADDRESS": server.address})
            commands = [
                [sys.executable, "-m", "worker", "--home", folder],
                [sys.executable, "-m", "bench.bare", server.address],
            ]
            environ = {"PERDURE_TEMPORAL_ADDRESS": server.address}
            workers = [_start(command, home, environ) for command in commands]
            try:
                async with SessionClient.connect(settings) as client:
                    bench = Bench(client, arguments.quick)
                    for part in ("overhead", "history", "throughput"):
                        if arguments.only in (None, part):
                            await getattr(bench, part)()
            finally:
                for worker in workers:
                    worker.kill()
                    worker.wait()
    report("turns", bench.results, quick=arguments.quick, partly=arguments.only is not None)


def _start(command: list[str], home: Path, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    with (home / f"{command[2]}.log").open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, env=os.environ | environ, stdout=log, stderr=log)


if __name__ == "__main__":
    asyncio.run(main())
