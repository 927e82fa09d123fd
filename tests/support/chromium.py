"""A real browser for tests: Chromium without a window, told what to do over its debugging port.

Invariant: the page is one that the gateway itself serves, so that its origin is the gateway's; and
nothing is left of the browser when the block ends.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import httpx2
from websockets.asyncio.client import ClientConnection, connect

#: What Debian, Google and a Mac call it.
_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--no-proxy-server", "--remote-debugging-port=0"),
)


def find_chromium() -> str | None:
    """The browser of this machine, if it has one."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class Page:
    """The one page of a browser."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)

    async def run(self, script: str) -> Any:
        """The value of an expression of JavaScript in the page."""
        result = await self._call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def _call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        await self._connection.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            answer = json.loads(await self._connection.recv())
            if answer.get("id") == number:
                assert "error" not in answer, answer
                found: dict[str, Any] = answer["result"]
                return found


@asynccontextmanager
async def page_at(url: str, home: Path) -> AsyncIterator[Page]:
    """A browser that shows `url`, its profile in `home`."""
    binary = find_chromium()
    assert binary is not None
    profile = home / "profile"
    process = await asyncio.create_subprocess_exec(
        *(binary, *_QUIET, f"--user-data-dir={profile}", url), stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        address = await _address(profile / "DevToolsActivePort")
        async with connect(address, max_size=2**24) as connection:
            page = Page(connection)
            async with asyncio.timeout(60):
                while (  # noqa: ASYNC110 (another process)
                    await page.run("location.href + document.readyState") != f"{url}complete"
                ):
                    await asyncio.sleep(0.05)
            yield page
    finally:
        process.kill()
        await process.wait()


async def _address(told: Path) -> str:
    """Where the page is spoken to."""
    async with asyncio.timeout(60), httpx2.AsyncClient() as http:
        while not (port := _port(told)):  # noqa: ASYNC110 (another process)
            await asyncio.sleep(0.05)
        while True:
            for target in (await http.get(f"http://127.0.0.1:{port}/json/list")).json():
                if target["type"] == "page":
                    address: str = target["webSocketDebuggerUrl"]
                    return address
            await asyncio.sleep(0.05)


def _port(told: Path) -> str:
    """The port that the browser has written down, empty until it has."""
    return told.read_text().partition("\n")[0] if told.exists() else ""
