"""One fake provider and one stack on it, for every promise that needs no worker of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support import model_stack
from tests.support.openai_server import OpenAIServer
from tests.support.stack import Stack, running_stack


@pytest.fixture(scope="session")
async def fake_provider() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        yield server


@pytest.fixture(scope="session")
async def model_stack_running(
    temporal_address: str, fake_provider: OpenAIServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    async with running_stack(
        tmp_path_factory.mktemp("models"),
        temporal_address,
        config=model_stack.AGENTS,
        environ=model_stack.environ(fake_provider),
    ) as running:
        yield running


@pytest.fixture
def models(model_stack_running: Stack) -> Stack:
    """A stack whose agents speak to `provider`."""
    return model_stack_running


@pytest.fixture
def provider(fake_provider: OpenAIServer) -> Iterator[OpenAIServer]:
    """The provider of `models`, without a memory of earlier tests."""
    fake_provider.forget()
    yield fake_provider
    fake_provider.forget()
