"""A process with writers that store entries into a memory, and print each id once stored.

`python -m tests.support.memory_writer PLACE COUNT NAMES [FILE_BYTES]`: a writer for each of the
NAMES, joined by commas. With FILE_BYTES no file may grow beyond so many bytes, as on a full disk.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path

from perdure.domain.errors import PerdureError
from perdure.domain.memory import NewEntry
from perdure.memory import HASHING, Memory


async def write(place: Path, name: str, count: int) -> None:
    """Store `count` entries named `name`."""
    memory = Memory(str(place / "memory"), HASHING, place / "locks")
    for number in range(count):
        content = f"{name} writes line {number}"
        (stored,) = await memory.store(NewEntry(tenant="t", agent="main", content=content))
        print(stored.id, flush=True)
    await memory.close()


async def write_all(place: Path, count: int, names: list[str]) -> None:
    """All writers at once."""
    await asyncio.gather(*(write(place, name, count) for name in names))


def main() -> int:
    """Write, and tell a refusal by its code."""
    if len(sys.argv) > 4:
        limit = int(sys.argv[4])
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        asyncio.run(write_all(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3].split(",")))
    except PerdureError as error:
        print(f"refused: {error.code}: {error.message}", flush=True)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
