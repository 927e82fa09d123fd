"""Stopping a stack from outside.

Invariant: when `down` returns, no stack runs on that home; asking twice is not an error.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from gateway.local.home import HomeLock, holder, stack_file
from gateway.local.relics import put_away
from perdure.domain.errors import Conflict, Denied, Unavailable

#: Seconds to stop in order: the graces of the workers and of the server, and some more.
ORDERLY = 40.0
#: Seconds for the kernel to take down what was killed.
_FORCED = 10.0


class Stopped(BaseModel):
    """What `down` did."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    home: str
    #: Whether a stack was running.
    was_running: bool
    #: The process that was stopped.
    pid: int | None = None
    #: Whether it had to be killed.
    killed: bool = False


async def down(home: Path, patience: float = ORDERLY) -> Stopped:
    """Stop the stack of `home`, wherever it was started, and wait until it is gone.

    Args:
        home: its home folder.
        patience: seconds it gets to stop in order before it is killed.

    Raises:
        Denied: when it belongs to another user.
        Unavailable: when it survives SIGKILL.
    """
    pid = holder(home)
    if pid is None:
        _put_away(home)
        return Stopped(home=str(home), was_running=False)
    for number, wait in ((signal.SIGTERM, patience), (signal.SIGKILL, _FORCED)):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
        except PermissionError:
            raise Denied(
                f"Perdure on {home} is process {pid} of another user.",
                "Stop it as that user.",
            ) from None
        if await _gone(home, pid, wait):
            _put_away(home)
            killed = number == signal.SIGKILL
            return Stopped(home=str(home), was_running=True, pid=pid, killed=killed)
    raise Unavailable(f"Process {pid} on {home} does not end.", "Look at its state with `ps`.")


async def _gone(home: Path, pid: int, patience: float) -> bool:
    deadline = time.monotonic() + patience
    while holder(home) == pid:
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.05)
    return True


def _put_away(home: Path) -> None:
    if not stack_file(home).exists():
        return
    # Somebody may have started the next stack meanwhile; then the file is theirs.
    with suppress(Conflict):
        lock = HomeLock.take(home)
        put_away(home)
        lock.release()
