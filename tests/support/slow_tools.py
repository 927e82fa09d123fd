"""A user's tool whose module takes ten seconds to import, as heavy ones do."""

from __future__ import annotations

import time

time.sleep(10)


def thing() -> str:
    """Does the thing."""
    return "done"
