"""Waiting for an answer while telling how far it is.

Invariant: a wait that ends, whatever ends it, leaves the message and its turn alone; its answer is
there for whoever asks again with the message's id. What is told meanwhile are states and names of
tools, never words of the conversation.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from gateway.http.parts import while_wanted
from gateway.mcp.offers import Asked
from perdure.domain.errors import NotFound, TimedOut, Unavailable
from perdure.domain.states import TURN_ENDS, EventKind
from perdure.store.outbox import Event
from perdure.store.transcript import TurnResult

#: How what happens in a turn is told; `{}` is the tool of the event.
_TOLD = {
    EventKind.STEP_RETRYING: "the model is asked again",
    EventKind.TOOL_STARTED: "running {}",
    EventKind.TOOL_COMPLETED: "{} is done",
    EventKind.APPROVAL_REQUESTED: "{} waits for a person's approval",
    EventKind.RUN_QUEUED: "a sub-agent waits for a place",
    EventKind.RUN_STARTED: "a sub-agent works",
    EventKind.RUN_ENDED: "a sub-agent has ended",
}


async def newest(asked: Asked) -> int:
    """The cursor from which on something is to be told."""
    return await asked.gateway.client.store.outbox.newest_id()


async def answer(
    asked: Asked, session_key: str, message_id: str, seconds: float, after: int
) -> TurnResult:
    """What the turn of a message came to, which is waited for at most so many seconds.

    Raises:
        NotFound: when the message was never sent, or dropped by a reset.
        TimedOut: no answer yet; it says how to ask again.
        Unavailable: the gateway is stopping.
    """
    client, stopping = asked.gateway.client, asked.gateway.stopping
    telling = asyncio.create_task(_tell(asked, session_key, message_id, after))
    try:
        work = client.wait(session_key, message_id, timeout=seconds)
        return await while_wanted(work, stopping)
    except TimedOut as error:
        raise TimedOut(
            f"No answer to {message_id} within {seconds:g} s; it is delivered, and goes on.",
            again(session_key, message_id),
        ) from error
    except Unavailable as error:
        raise Unavailable(error.message, again(session_key, message_id)) from error
    finally:
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)


def again(session_key: str, message_id: str) -> str:
    """How one comes back for an answer."""
    return (
        f'Call sessions_wait with session_key "{session_key}" and message_id "{message_id}"; '
        "its answer is kept. sessions_interrupt stops the turn."
    )


async def _tell(asked: Asked, session_key: str, message_id: str, after: int) -> None:
    with suppress(NotFound):  # it goes out of the caller's sight, and the wait tells them
        so_far = await asked.gateway.client.turn(session_key, message_id)
        turn = so_far.turn if so_far is not None else None
        async for event in asked.gateway.client.events(session_key, after=after):
            if event.kind is EventKind.TURN_STARTED and event.payload["message_id"] == message_id:
                turn = event.turn
                await asked.progress(f"turn {turn} has begun")
            if event.turn != turn or turn is None:
                continue
            if event.kind in TURN_ENDS:
                return
            told = _told(event)
            if told is not None:
                await asked.progress(told)


def _told(event: Event) -> str | None:
    if event.kind is EventKind.STEP_STARTED:
        return f"step {event.step}"
    told = _TOLD.get(event.kind)
    return None if told is None else told.format(event.payload.get("tool", "a call"))
