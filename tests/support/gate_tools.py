"""A user's tool that holds a turn until a test lets it go on, however slow the machine is."""

from __future__ import annotations

import time
from pathlib import Path

from perdure.tools import Effect, tool

_LONGEST = 120.0


@tool(effect=Effect.READ)
def gate(file: str) -> str:
    """Wait until a file is there.

    Args:
        file: its path.
    """
    until = time.monotonic() + _LONGEST
    while not Path(file).exists():
        if time.monotonic() > until:
            raise TimeoutError(f"{file} did not come")
        time.sleep(0.05)
    return "open"
