"""Sending as careful clients and as other sessions do."""

from __future__ import annotations

import asyncio

from activities.post import workflow_id
from perdure.domain.envelopes import Envelope
from perdure.domain.errors import Unavailable
from perdure.domain.messages import Frozen
from tests.support.stack import Stack


async def send_surely(stack: Stack, key: str, text: str, message_id: str) -> None:
    """Send again, with the same id, until it is confirmed."""
    while True:
        try:
            await stack.client.send(key, text, message_id=message_id)
            return
        except Unavailable:
            await asyncio.sleep(0.1)


async def deliver(stack: Stack, key: str, text: str, envelope: Envelope) -> None:
    """Lay a message down and announce it by signal, to a session that is open."""
    await stack.client.store.mailbox.post(key, envelope, text)
    await signal(stack, key, envelope)


async def signal(stack: Stack, key: str, *arguments: object) -> None:
    """Signal `deliver` with whatever arguments."""
    handle = stack.client.temporal.get_workflow_handle(workflow_id(key))
    await handle.signal(
        "deliver",
        args=[
            value.model_dump(mode="json") if isinstance(value, Frozen) else value
            for value in arguments
        ],
    )
