"""One real Temporal server for the whole run, and one ordinary stack on it; one PostgreSQL, and the
stores of the tests that run on each engine.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.postgres import Cluster, missing, running_cluster
from tests.support.stack import Stack, running_stack, server

# Where the tests run in the background, Ctrl-C is ignored, and would be by all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
async def temporal_address(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    async with server(tmp_path_factory.mktemp("temporal")) as address:
        yield address


@pytest.fixture(scope="session")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    """A stack for tests that kill nothing: sessions are told apart by their keys."""
    async with running_stack(tmp_path_factory.mktemp("home"), temporal_address) as running:
        yield running


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """One PostgreSQL server for the whole run."""
    if why := missing():
        pytest.skip(why)
    with running_cluster() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
async def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The URL of an empty store, on one engine after the other."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'perdure.db'}"
        return
    running: Cluster = request.getfixturevalue("cluster")
    url = await running.fresh()
    yield url
    await running.drop(url)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it where nobody overlooks it."""
    if why := missing():
        terminalreporter.write_line(why, yellow=True, bold=True)
