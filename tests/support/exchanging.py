"""Sessions that send to each other, by directives of the rehearsal model, and what came of it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from perdure.domain.labels import Label
from perdure.domain.states import EventKind
from perdure.store.transcript import HistoryMessage, TurnResult
from tests.support import watching
from tests.support.stack import Stack, fresh_key, until

TIMEOUT = 60
CONFIG = """
[agents.main]
tools = ["sessions", "files"]
"""


def send(target: str, text: str, **more: Any) -> str:
    """A directive that sends."""
    return f"/sessions_send {json.dumps({'session_key': target, 'text': text, **more})}"


async def session(
    stack: Stack, name: str, *, agent: str | None = None, label: Label = Label.PUBLIC
) -> str:
    """The key of a session that is there, and at rest."""
    key = fresh_key(name)
    await stack.client.ask(key, "/say here", agent=agent, label=label, timeout=TIMEOUT)
    return key


async def sessions(stack: Stack, *names: str) -> list[str]:
    """The keys of several."""
    return list(await asyncio.gather(*(session(stack, name) for name in names)))


async def result(stack: Stack, key: str, call: str) -> dict[str, Any]:
    """What a call of a session comes to, asked for as a turn of its own."""
    answer = await stack.client.ask(key, f"{call}\n/say {{{{1}}}}", timeout=TIMEOUT)
    return dict(json.loads(answer.text))


async def error(stack: Stack, key: str, call: str) -> dict[str, str]:
    """The refusal that a call of a session comes to."""
    return dict((await result(stack, key, call))["error"])


async def start(stack: Stack, key: str, *lines: str) -> str:
    """Send a script, and wait until its turn calls the model or, if it has one, a tool."""
    text = "\n".join(lines)
    ticket = await stack.client.send(key, text)
    kind = EventKind.EXCHANGE_OPENED if "/sessions_send" in text else EventKind.STEP_STARTED

    async def begun() -> bool:
        turn = await stack.client.store.transcript.turn_of(key, ticket.message_id)
        told = await watching.events(stack, key, kind)
        return turn is not None and any(event.turn == turn.turn for event in told)

    await until(begun)
    return ticket.message_id


async def ended(stack: Stack, key: str, message_id: str) -> TurnResult:
    """The end of the turn of a message."""
    return await stack.client.wait(key, message_id, timeout=TIMEOUT)


async def told_by(stack: Stack, key: str, sender: str) -> list[HistoryMessage]:
    """The messages of a session that are from another."""
    return [one for one in await watching.transcript(stack, key) if one.from_session == sender]


async def hears(stack: Stack, key: str, sender: str, count: int = 1) -> list[HistoryMessage]:
    """The same, once there are `count` of them and each is answered."""

    async def heard() -> bool:
        told = await told_by(stack, key, sender)
        turns = [await stack.client.store.transcript.turn_of(key, one.id) for one in told]
        return len([turn for turn in turns if turn and turn.state != "running"]) >= count

    await until(heard)
    return await told_by(stack, key, sender)


async def dropped(stack: Stack, key: str) -> list[tuple[str, str]]:
    """What a session dropped: id and reason."""
    events = await watching.events(stack, key, EventKind.MESSAGE_DROPPED)
    return [(event.payload["message_id"], event.payload["reason"]) for event in events]
