"""Child processes whose output goes to a file and whose life is bound to ours.

Invariant: a child never outlives this process, and never blocks on a pipe that nobody reads.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TETHER = Path(__file__).with_name("tether.py")

#: How much of a log's end is read to find its last lines.
_TAIL_BYTES = 16_384


@dataclass(frozen=True)
class Command:
    """What to run: a name for people, the arguments, the log file, the whole environment."""

    name: str
    argv: tuple[str, ...]
    log: Path
    environ: Mapping[str, str]


class Child:
    """A process that runs, or ran, a command. Make one with `Child.start`."""

    def __init__(self, command: Command, process: Process, log_start: int) -> None:
        self.command = command
        self.pid = process.pid
        self._process = process
        self._log_start = log_start

    @classmethod
    async def start(cls, command: Command) -> Child:
        """Start `command`, its output appended to its log.

        Call it from a thread that lives as long as the child may: the kernel kills the child
        when that thread ends (Linux; elsewhere children of a killed parent stay).

        Raises:
            OSError: when no process can be made.
        """
        command.log.parent.mkdir(parents=True, exist_ok=True)
        argv = command.argv
        if sys.platform == "linux":
            argv = (sys.executable, "-I", "-S", str(_TETHER), str(os.getpid()), *argv)
        with command.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *argv,
                env=dict(command.environ),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C in the terminal must reach us alone, so that we can stop in order.
                start_new_session=True,
            )
            return cls(command, process, log.tell())

    @property
    def alive(self) -> bool:
        """Whether it still runs, as far as we have heard."""
        return self._process.returncode is None

    @property
    def end(self) -> str:
        """How it ended, for people: `was killed by SIGKILL`, `ended with exit code 1`."""
        code = self._process.returncode
        if code is None:
            return "runs"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"ended with exit code {code}"

    async def wait(self) -> None:
        """Until it has ended, and with it all that it had started itself."""
        await self._process.wait()
        self._kill_group()

    async def stop(self, grace: float) -> None:
        """SIGTERM, `grace` seconds, then SIGKILL; returns when it is gone."""
        try:
            with suppress(ProcessLookupError):
                self._process.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), grace)
        finally:
            self.kill()
        await self.wait()

    def kill(self) -> None:
        """SIGKILL to it and to all that it has started."""
        if self.alive:
            self._kill_group()

    def tail(self, lines: int = 20) -> str:
        """The last lines of what it has written so far."""
        with self.command.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - _TAIL_BYTES))
            text = log.read().decode(errors="replace")
        return "\n".join(text.rstrip().splitlines()[-lines:])

    def _kill_group(self) -> None:
        # It leads a process group of its own, named by its id.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
