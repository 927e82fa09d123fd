"""What is sent to a provider is what its SDK would send, at a cost that does not grow with walks
through the conversation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from copy import deepcopy
from typing import Any

import pytest
from openai._utils import _transform
from openai.resources.chat.completions import completions

from perdure.domain.messages import Message, Role, ToolCall
from perdure.models import close_models
from perdure.models.conversion import to_history
from tests.support.asking import ask, message, result
from tests.support.openai_server import OpenAIServer


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "key")
        await close_models()
        yield server
        await close_models()


def conversation(turns: int) -> list[Message]:
    messages = []
    for turn in range(turns):
        seq = 4 * turn + 1
        call = ToolCall(id=f"c{turn}", name="read", arguments='{"path": "<ä>"}')
        messages += [
            message(seq, Role.USER, f"question {turn}"),
            message(seq + 1, Role.ASSISTANT, tool_calls=(call,)),
            result(seq + 2, call.id, "{}"),
            message(seq + 3, Role.ASSISTANT, f"answer {turn}"),
        ]
    return [*messages, message(4 * turns + 1, Role.USER, "and now?")]


async def test_messages_are_sent_as_the_sdk_sends_them(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ask(*conversation(3))
    with monkeypatch.context() as own:
        own.setattr(completions, "async_maybe_transform", _transform.async_maybe_transform)
        await ask(*conversation(3))
    ours, theirs = server.requests
    assert ours.body == theirs.body
    assert list(ours.body) == list(theirs.body)


async def test_what_was_sent_is_sent_again_unchanged(server: OpenAIServer) -> None:
    # Each message is converted once; a request must leave no mark on what the next one sends.
    transcript = conversation(3)
    before = deepcopy(to_history(transcript))
    await ask(*transcript)
    assert to_history(transcript) == before
    await ask(*transcript)
    first, second = server.requests
    assert first.body == second.body


async def test_the_sdk_looks_at_no_more_of_a_long_conversation_than_of_a_short_one(
    server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = _transform._async_transform_recursive
    looked: list[int] = []

    async def counted(*args: Any, **kwargs: Any) -> object:
        looked[-1] += 1
        return await walk(*args, **kwargs)

    monkeypatch.setattr(_transform, "_async_transform_recursive", counted)
    for turns in (2, 40):
        looked.append(0)
        await ask(*conversation(turns))
    assert looked[0] == looked[1] > 0
