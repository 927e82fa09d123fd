"""Timing and telling: percentiles, the result table, the machine it was measured on."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"


async def times_of(action: Callable[[], Awaitable[object]], repeats: int) -> list[float]:
    """Milliseconds of each of `repeats` runs, one after the other."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        await action()
        times.append((time.perf_counter() - started) * 1000)
    return times


def p50(times: Sequence[float]) -> float:
    """The median."""
    return statistics.median(times)


def p95(times: Sequence[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(times, n=20)[-1]


def report(
    name: str,
    results: dict[str, Any],
    *,
    quick: bool,
    partly: bool = False,
    width: int | None = None,
) -> None:
    """Print results as a table, and keep them unless the run was a quick one; those of a part go
    among the others."""
    table = Table("measure", "value")
    for measure, value in results.items():
        table.add_row(measure, str(value))
    Console(width=width).print(table)
    if not quick:
        print(keep(name, (_kept(name) if partly else {}) | results))


def _kept(name: str) -> dict[str, Any]:
    path = RESULTS / f"{name}.json"
    return dict(json.loads(path.read_text())["results"]) if path.is_file() else {}


def keep(name: str, results: dict[str, Any]) -> Path:
    """Write results as JSON beside the benchmarks, with the date and the machine."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    about = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    path.write_text(json.dumps({"about": about, "results": results}, indent=2) + "\n")
    return path
