"""Commands run where the test runs: the same lines and exit codes, without a process each.

What needs a terminal or a signal runs in a process of its own: see `terminal.py`.
"""

from __future__ import annotations

import asyncio
import io
import os
import threading
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from gateway.cli import run
from tests.support.terminal import Ran, environment

#: Standard output belongs to the whole process.
_ONE_AT_A_TIME = threading.Lock()


async def perdure_here(*arguments: str, home: Path, environ: Mapping[str, str]) -> Ran:
    """Run `perdure ARGUMENTS` to its end, in a thread of this process."""
    return await asyncio.to_thread(_run, arguments, environment(home, environ))


def _run(arguments: tuple[str, ...], environ: Mapping[str, str]) -> Ran:
    with (
        _ONE_AT_A_TIME,
        patch.dict(os.environ, environ, clear=True),
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
    ):
        code = run(arguments)
    return Ran(code, out.getvalue(), err.getvalue())
