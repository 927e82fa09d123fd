"""What a model is sent of an exchange: whose words are whose, and a transcript that is in order."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support import model_stack
from tests.support.exchanging import TIMEOUT, sessions
from tests.support.openai_server import OpenAIServer, calls, says
from tests.support.stack import Stack, running_stack

CONFIG = f"""
[agents.main]
model = "{model_stack.PRICED}"
instructions = "Be brief."
tools = ["sessions"]
"""


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str,
    fake_provider: OpenAIServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Stack]:
    async with running_stack(
        tmp_path_factory.mktemp("prompts"),
        temporal_address,
        config=CONFIG,
        environ=model_stack.environ(fake_provider),
    ) as running:
        yield running


def said(sent: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["role"], str(one.get("content"))) for one in sent]


async def test_an_exchange_as_both_models_see_it(stack: Stack, provider: OpenAIServer) -> None:
    a, b = await sessions(stack, "a", "b")
    provider.forget()
    arguments = json.dumps({"session_key": b, "text": "hi\nb", "mode": "ping-pong", "max_turns": 2})
    provider.script(
        calls(("c1", "sessions_send", arguments)),
        says("first of b"),
        says("aside of a"),
        says("second of b"),
        says("done"),
    )
    assert (await stack.client.ask(a, "settle it", timeout=TIMEOUT)).text == "done"
    _, of_b, aside, again, main = [request.messages for request in provider.requests]

    role, framed = said(of_b)[-1]
    assert role == "user"
    first, *body, last = framed.split("\n")
    assert first.startswith(f"[Message from the session {a} (label PUBLIC, your answer goes to it)")
    assert body == ["| hi", "| b"]
    assert last == f"[End of the message from {a}.]"

    # Aside, the call that waits has a result that says so, and the words of B come after it.
    roles = [role for role, _ in said(aside)]
    assert roles[-4:] == ["user", "assistant", "tool", "user"]
    assert "under way" in said(aside)[-2][1]
    assert "| first of b" in said(aside)[-1][1]
    assert aside[-2]["tool_call_id"] == aside[-3]["tool_calls"][0]["id"]
    assert "sessions_send" not in str(provider.requests[2].body["tools"])

    assert "| aside of a" in said(again)[-1][1]
    # In the main transcript it never happened, but as the result of the call.
    assert [role for role, _ in said(main)][-3:] == ["user", "assistant", "tool"]
    settled = json.loads(said(main)[-1][1])
    assert (settled["response"], settled["turns_completed"]) == ("second of b", 2)
    assert "| first of b" not in str(main)
