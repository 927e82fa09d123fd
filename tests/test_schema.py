"""A schema that is current costs nothing: commands must not wait for what has nothing to do."""

from __future__ import annotations

import subprocess
import sys

from perdure.store import Store
from tests.support.stack import ROOT

_OPEN = """
import asyncio, sys
from perdure.store import Store

async def main():
    await (await Store.open(sys.argv[1])).close()

asyncio.run(main())
print("alembic" in sys.modules)
"""


async def test_alembic_is_loaded_only_where_it_has_something_to_do(store_url: str) -> None:
    def opened() -> str:
        command = [sys.executable, "-c", _OPEN, store_url]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    await (await Store.open(store_url)).close()
    assert opened() == "False\n"
