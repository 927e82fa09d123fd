"""One writer: the writes of a process queue on one thread, and processes take turns.

Invariant: whoever writes to a tenant's tables holds the tenant's lock, which the kernel releases
when its holder dies. No wait is without an end.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from perdure.domain.errors import Unavailable

Result = TypeVar("Result")

#: Seconds to wait for another process: the longest single write, a compaction, takes a few.
PATIENCE = 60.0
_LOOK_EVERY = 0.005


class Writer:
    """Runs writes one after another, on a thread of its own with a loop of its own: so it serves
    callers on any event loop."""

    def __init__(self, locks: Path) -> None:
        self._locks = locks
        self._threads = ThreadPoolExecutor(1, "memory-write")
        self._owner = os.getpid()

    async def run(self, name: str, job: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Run a write while holding the lock `name`. A caller that is cancelled does not stop it.

        Raises:
            Unavailable: when another process holds the lock for too long.
        """
        if self._owner != os.getpid():
            # A thread does not survive a fork.
            self._threads, self._owner = ThreadPoolExecutor(1, "memory-write"), os.getpid()
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._locked, name, job)

    def _locked(self, name: str, job: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        with locked(self._locks / f"{name}.lock"):
            return asyncio.run(job())

    async def close(self) -> None:
        """Finish what was begun."""
        if self._owner == os.getpid():
            await asyncio.to_thread(self._threads.shutdown)


@contextmanager
def locked(path: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Hold a lock that all processes share; waits for it, up to `patience` seconds.

    Raises:
        Unavailable: when it was not free in time, or the lock file cannot be made.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unavailable(f"The lock of the memory cannot be made: {error}.") from error
    try:
        _wait_for(handle, path, patience)
        try:
            yield
        finally:
            # Closing alone would leave it with a child that was forked meanwhile.
            fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def _wait_for(handle: int, path: Path, patience: float) -> None:
    end = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= end:
                raise Unavailable(
                    f"Another process writes to the memory for more than {patience:g} s; it holds "
                    f"{path}.",
                    "Is it stopped? Its lock is released when it ends. Try again after that.",
                ) from None
            time.sleep(_LOOK_EVERY)
