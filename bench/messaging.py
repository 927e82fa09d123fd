"""What a message from session to session costs, beside bare signals between two workflows.

Run with `python -m bench.messaging [--quick]`. Both sides use one tuned server, one worker process
each, and take turns in blocks, so that a slow minute hits both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.bare_messages import QUEUE, Talker
from bench.measure import p50, p95, report, times_of
from gateway.client import SessionClient
from gateway.local import running_server
from perdure.config import load_settings

ROOT = Path(__file__).parent.parent
BLOCKS = 6
#: Messages of one step; a model may call so many tools at once.
AT_ONCE = 20
CONFIG = '[agents.main]\ntools = ["sessions", "files"]\n[limits]\ninbox_per_sender = 10000\n'


def send(target: str, text: str, **more: Any) -> str:
    """A directive that sends."""
    return f"/sessions_send {json.dumps({'session_key': target, 'text': text, **more})}"


class Bench:
    """A client, two bare workflows, two sessions, and what was measured so far."""

    def __init__(self, client: SessionClient, quick: bool) -> None:
        self._client = client
        self._repeats = 4 if quick else 15
        self.results: dict[str, Any] = {}

    async def measure(self) -> None:
        """Round trips first: a session that has sent much has a longer history."""
        now = time.time_ns()
        start = self._client.temporal.start_workflow
        one, two = [
            await start(Talker.run, id=f"talker-{side}-{now}", task_queue=QUEUE) for side in "ab"
        ]
        a, b = f"default:a-{now}", f"default:b-{now}"
        kinds = {
            "bare round trip": lambda: one.execute_update(Talker.ask, two.id),
            "plain turn": lambda: self._ask(b, "/say hello"),
            "turn with one short tool": lambda: self._ask(a, "/ls {}\n/say done"),
            "turn that waits for another session": lambda: self._ask(
                a, send(b, "/say hello", mode="wait"), "/say done"
            ),
            "turn that goes on for 2 further turns": lambda: self._ask(
                a, send(b, "/say /say /say end", mode="ping-pong", max_turns=2), "/say done"
            ),
        }
        times = await self._times(kinds, self._repeats)
        for name, measured in times.items():
            self.results[f"{name}, ms p50"] = round(p50(measured), 1)
            self.results[f"{name}, ms p95"] = round(p95(measured), 1)
        waits = p50(times["turn that waits for another session"])
        both = p50(times["turn with one short tool"]) + p50(times["plain turn"])
        self.results["a wait beyond a tool turn and the target's turn, ms"] = round(waits - both, 1)
        self.results["the same ÷ bare round trip"] = round(
            (waits - both) / p50(times["bare round trip"]), 2
        )
        await self._sends(one, two, a)

    async def _sends(self, one: Any, two: Any, a: str) -> None:
        silent = f"default:silent-{time.time_ns()}"
        await self._ask(silent, "/say hello")
        # It answers in its own time, which is another measure.
        await self._client.send(silent, "/sleep 3600")
        batch = [send(silent, "hello")] * AT_ONCE
        kinds = {
            "bare": lambda: one.execute_update(Talker.send, args=[two.id, AT_ONCE]),
            "session": lambda: self._ask(a, *batch, "/say done"),
            "without": lambda: self._ask(a, "/say done"),
        }
        times = await self._times(kinds, max(2, self._repeats // 3))
        self.results["bare signals/s"] = round(AT_ONCE * 1000 / p50(times["bare"]))
        spent = p50(times["session"]) - p50(times["without"])
        self.results["sends/s of a session"] = round(AT_ONCE * 1000 / spent)
        self.results["a send, ms"] = round(spent / AT_ONCE, 1)
        await self._client.interrupt(silent)

    async def _times(self, kinds: dict[str, Any], repeats: int) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {name: [] for name in kinds}
        for action in kinds.values():
            await times_of(action, 3)
        for _ in range(BLOCKS):
            for name, action in kinds.items():
                times[name] += await times_of(action, repeats)
        return times

    async def _ask(self, key: str, *lines: str) -> None:
        await self._client.ask(key, "\n".join(lines), timeout=120)


async def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the repeats")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        home = Path(folder)
        (home / "perdure.toml").write_text(CONFIG)
        async with running_server(home) as server:
            settings = load_settings(home, {"PERDURE_TEMPORAL_ADDRESS": server.address})
            commands = [
                [sys.executable, "-m", "worker", "--home", folder],
                [sys.executable, "-m", "bench.bare_messages", server.address],
            ]
            environ = os.environ | {"PERDURE_TEMPORAL_ADDRESS": server.address}
            workers = [_start(command, environ) for command in commands]
            try:
                async with SessionClient.connect(settings) as client:
                    bench = Bench(client, arguments.quick)
                    await bench.measure()
            finally:
                for worker in workers:
                    worker.kill()
                    worker.wait()
    report("messaging", bench.results, quick=arguments.quick)


def _start(command: list[str], environ: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, cwd=ROOT, env=environ, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    asyncio.run(main())
