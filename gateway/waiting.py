"""Waiting for what happens in a session: the end of a turn, or another event.

Invariant: a wait begins at a cursor that was taken before what is waited for was asked for, so it
cannot be missed; and it ends with what the caller may read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from gateway.reading import turn_for_people
from gateway.sight import Sight
from perdure.domain.errors import NotFound, TimedOut
from perdure.domain.states import TURN_ENDS, EventKind, TurnState
from perdure.store import Store
from perdure.store.outbox import Event
from perdure.store.transcript import TurnResult


class Waiting:
    """The waits of one caller."""

    def __init__(self, store: Store, sight: Sight) -> None:
        self._store = store
        self._sight = sight

    async def so_far(self, session_key: str, message_id: str) -> TurnResult | None:
        """See `SessionClient.turn`."""
        hidden = await self._sight.hides(session_key)
        # In this order: a message goes from the mailbox into its turn and never back.
        waits = await self._store.mailbox.holds(session_key, message_id)
        result = await self.turn_of(session_key, message_id)
        if hidden or (result is None and not waits):
            raise NotFound(
                f"No message {message_id} waits for the session {session_key}.",
                "It was never sent, or was discarded before its turn. Send it again if it still "
                "matters.",
            )
        return result

    async def wait(self, session_key: str, message_id: str, timeout: float | None) -> TurnResult:
        """See `SessionClient.wait`."""
        cursor = await self._store.outbox.newest_id()
        result = await self.so_far(session_key, message_id)
        if result is not None and result.state is not TurnState.RUNNING:
            return result
        try:
            async with asyncio.timeout(timeout):
                return await self.turn(session_key, message_id, cursor)
        except TimeoutError as error:
            raise timed_out(session_key, message_id, timeout, delivered=True) from error

    async def turn(self, session_key: str, message_id: str, after: int) -> TurnResult:
        """The end of the turn of a message, which comes after a cursor.

        Raises:
            NotFound: when the message is discarded before its turn.
        """
        ends = TURN_ENDS | {EventKind.MESSAGE_DROPPED}
        event = await self.event(
            session_key,
            after,
            lambda event: event.kind in ends and event.payload["message_id"] == message_id,
        )
        result = await self.turn_of(session_key, message_id)
        if event.kind is EventKind.MESSAGE_DROPPED or result is None:
            raise NotFound(
                f"The message {message_id} was discarded before its turn "
                f"({event.payload.get('reason')}).",
                "Send it again if it still matters.",
            )
        return result

    async def event(self, session_key: str, after: int, wanted: Callable[[Event], bool]) -> Event:
        """The first event of a session after a cursor that is wanted."""
        async with aclosing(self._store.outbox.follow(session_key, after, near=True)) as events:
            async for event in events:
                if wanted(event):
                    return event
        raise AssertionError("an outbox never ends")

    async def turn_of(self, session_key: str, message_id: str) -> TurnResult | None:
        """The turn of a message, as the caller may read it; None when no turn has taken it."""
        level = self._sight.level
        result = await turn_for_people(self._store, level, session_key, message_id)
        return None if result is None else await self._sight.readable(result)


def timed_out(
    session_key: str, message_id: str, timeout: float | None, delivered: bool
) -> TimedOut:
    """That no reply came in time, and whether the message is delivered."""
    told = "it is delivered and will be answered" if delivered else "its delivery is not confirmed"
    return TimedOut(
        f"No reply to {message_id} within {timeout or 0:g} s; {told}.",
        f"Ask on with the same id: `perdure ask {session_key} … --message-id {message_id}`.",
    )
