"""Commands as people run them: in a process of their own, through pipes or on a terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.stack import ROOT

_PERDURE = ("-m", "gateway.cli")
#: Become the leader of the terminal on stdin, as a shell's child is, so that Ctrl-C is a signal.
_ON_TERMINAL = (
    "import os, sys; os.login_tty(0); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\x1b[=>]")


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str


def environment(home: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a command on `home`, without the settings of whoever runs the tests."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    terminal = {"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1"}
    return own | terminal | {"PYTHONPATH": str(ROOT), "PERDURE_HOME": str(home)} | dict(environ)


async def perdure(
    *arguments: str, home: Path, environ: Mapping[str, str], stdin: str | bytes = ""
) -> Ran:
    """Run `perdure ARGUMENTS` to its end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *_PERDURE, *arguments),
        env=environment(home, environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    given = stdin.encode() if isinstance(stdin, str) else stdin
    out, err = await asyncio.wait_for(process.communicate(given), 120)
    assert process.returncode is not None
    return Ran(process.returncode, out.decode(), err.decode())


class Terminal:
    """A command on a terminal of its own. Open it with `on_terminal`."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self._process = process
        self._descriptor = descriptor
        self._raw = b""
        self._read_to = 0
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self) -> None:
        try:
            read = os.read(self._descriptor, 65_536)
        except OSError:
            read = b""
        if not read:
            asyncio.get_running_loop().remove_reader(self._descriptor)
        self._raw += read

    @property
    def output(self) -> str:
        """Everything written so far, as it came."""
        return self._raw.decode(errors="replace")

    @property
    def text(self) -> str:
        """Everything written so far, without escape sequences."""
        return _ESCAPES.sub("", self.output).replace("\r", "")

    async def sees(self, words: str, timeout: float = 60) -> None:
        """Wait until `words` appear after what was waited for last."""
        try:
            async with asyncio.timeout(timeout):
                while (found := self.text.find(words, self._read_to)) < 0:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"no {words!r} in:\n{self.text[self._read_to :]}") from None
        self._read_to = found + len(words)

    def type(self, keys: str) -> None:
        """Press keys; `\\r` is Enter, `\\x03` is Ctrl-C."""
        os.write(self._descriptor, keys.encode())

    async def ends(self) -> int:
        """Wait for the end of the command; its exit code."""
        return await asyncio.wait_for(asyncio.to_thread(self._process.wait), 60)

    def close(self) -> None:
        """Kill it if it still runs."""
        asyncio.get_running_loop().remove_reader(self._descriptor)
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        os.close(self._descriptor)


@asynccontextmanager
async def on_terminal(
    *arguments: str, home: Path, environ: Mapping[str, str]
) -> AsyncIterator[Terminal]:
    """Run `perdure ARGUMENTS` on a terminal."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, 100))
    process = subprocess.Popen(  # noqa: ASYNC220 (an instant)
        [sys.executable, "-c", _ON_TERMINAL, *_PERDURE, *arguments],
        env=environment(home, environ),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        close_fds=True,
    )
    os.close(theirs)
    terminal = Terminal(process, ours)
    try:
        yield terminal
    finally:
        terminal.close()
