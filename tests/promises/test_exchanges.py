"""Sessions that send to each other: three modes, each message once, whatever dies meanwhile."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support import watching
from tests.support.stack import Stack, fresh_key, running_stack, until

TIMEOUT = 60
CONFIG = """
[agents.main]
tools = ["sessions", "files"]
"""


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("exchanges")
    async with running_stack(home, temporal_address, config=CONFIG) as running:
        yield running


def send(target: str, text: str, **more: Any) -> str:
    """A directive that sends."""
    return f"/sessions_send {json.dumps({'session_key': target, 'text': text, **more})}"


async def session(stack: Stack, name: str) -> str:
    """A session that is there."""
    key = fresh_key(name)
    await stack.client.ask(key, "/say here", timeout=TIMEOUT)
    return key


async def result(stack: Stack, key: str, text: str) -> dict[str, Any]:
    """What the first tool call of a message comes to."""
    answer = await stack.client.ask(key, f"{text}\n/say {{{{1}}}}", timeout=TIMEOUT)
    return dict(json.loads(answer.text))


async def test_fire_and_forget_is_one_message_marked_with_its_sender(stack: Stack) -> None:
    a, b = await session(stack, "a"), await session(stack, "b")
    sent = await result(stack, a, send(b, "/say hello back"))
    assert sent == {"sent": True, "message_id": sent["message_id"]}

    async def answered():
        return (await watching.transcript(stack, b))[-1].text == "hello back"

    await until(answered)
    told = [m for m in await watching.transcript(stack, b) if m.from_session == a]
    assert [m.id for m in told] == [sent["message_id"]]


async def test_wait(stack: Stack) -> None:
    a, b = await session(stack, "a"), await session(stack, "b")
    sent = await result(stack, a, send(b, "/say hello back", mode="wait"))
    assert sent["status"] == "replied", sent
    assert sent["response"] == "hello back"


async def test_ping_pong(stack: Stack) -> None:
    a, b = await session(stack, "a"), await session(stack, "b")
    sent = await result(stack, a, send(b, "/say /say /say three", mode="ping-pong", max_turns=2))
    print(json.dumps(sent, indent=1))
    assert sent["turns_completed"] == 2
