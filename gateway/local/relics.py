"""What a killed stack left behind, put away before the next one starts.

Invariant: a process is ended only if the relic names it and its command line names this home, so
a process id that was given to a stranger since then harms nobody.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from gateway.local.home import read_stack_file, remove_stack_file

#: Seconds for the kernel to take down a killed process.
_PATIENCE = 5.0


def put_away(home: Path) -> None:
    """End the processes of a stack that was killed, and remove its file. Needs the home's lock.

    On Linux they have died with it; elsewhere a server may still have the database open.
    """
    info = read_stack_file(home)
    if info is not None:
        named = [info.pids.temporal, *info.pids.workers, info.pids.gateway]
        left = [pid for pid in named if pid is not None and _runs_on(pid, home)]
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _PATIENCE
        while any(_runs_on(pid, home) for pid in left) and time.monotonic() < deadline:
            time.sleep(0.05)
    remove_stack_file(home)


def _runs_on(pid: int, home: Path) -> bool:
    try:
        found = subprocess.run(
            ["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False
        )
    except FileNotFoundError:
        # A slim image without ps is a Linux, where nothing is left.
        return False
    return os.fsencode(home) in found.stdout
