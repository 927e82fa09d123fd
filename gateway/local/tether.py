"""`tether.py PARENT PROGRAM ARGUMENTS…`: become PROGRAM, and die when PARENT does.

Invariant: on Linux, no process that was started through here outlives the one that started it,
even if that one got SIGKILL. A script of its own, since Python code between fork and exec is not
safe in a process with threads.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

#: From linux/prctl.h: the signal a process gets when the thread that forked it ends. Kept by exec.
PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie the knot, then replace this process."""
    parent, *argv = sys.argv[1:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    # The parent may have died before the knot was tied.
    if os.getppid() != int(parent):
        sys.exit(f"process {parent}, which started this one, is gone")
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        sys.exit(f"{argv[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
