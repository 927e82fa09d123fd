"""Looking at processes from outside."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path


def alive(pid: int) -> bool:
    """Whether `pid` runs. A zombie, which nobody has reaped, does not."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, check=False)
    return found.stdout.strip()[:1] not in (b"", b"Z")


def running_on(home: Path) -> list[int]:
    """The processes whose command line names `home`."""
    found = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,stat=,command="], capture_output=True, text=True, check=True
    )
    rows = (line.split(None, 2) for line in found.stdout.splitlines())
    return [
        int(row[0]) for row in rows if len(row) == 3 and row[1][0] != "Z" and str(home) in row[2]
    ]


async def eventually(holds: Callable[[], object], timeout: float = 60) -> None:
    """Wait until `holds()` is true; fails loudly instead of hanging."""
    async with asyncio.timeout(timeout):
        while True:
            if holds():
                return
            await asyncio.sleep(0.05)
