"""One real Temporal server for the whole run, and one ordinary stack on it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.stack import Stack, running_stack, server


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
