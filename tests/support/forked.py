"""Our own processes, forked from one that has loaded Perdure already.

A fresh interpreter takes two seconds of CPU to load it, and tests start hundreds of them.

Invariant: what is forked has a pid, an environment and an exit code of its own, and dies by signals
as any process does; of the test's own process it has nothing.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping
from multiprocessing import get_context
from pathlib import Path

_CONTEXT = get_context("forkserver")
#: Loaded once, by the process that others are forked from.
_LOADED = ["worker", "gateway.http.__main__", "tests.support.forked"]


class Forked:
    """`python -m MODULE ARGUMENTS`, its output in a file; with the part of `subprocess.Popen` that
    tests need."""

    def __init__(
        self, module: str, arguments: tuple[str, ...], environ: Mapping[str, str], log: Path
    ) -> None:
        _CONTEXT.set_forkserver_preload(_LOADED)
        self._process = _CONTEXT.Process(
            target=_become, args=(module, arguments, dict(environ), str(log)), name=module
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def poll(self) -> int | None:
        """The exit code, once it has ended."""
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; the exit code."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self._process.exitcode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _become(module: str, arguments: tuple[str, ...], environ: dict[str, str], log: str) -> None:
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.clear()
    os.environ.update(environ)
    # As an interpreter does when it begins; this one has begun.
    places = environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [place for place in places if place and place not in sys.path]
    sys.argv = [module, *arguments]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    runpy.run_module(module, run_name="__main__", alter_sys=True)
