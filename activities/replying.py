"""Answers on their way back to where a message came from.

Invariant: an answer leaves once, by the ledger of deliveries: what may have left is not sent again
unless its channel is to repeat. What certainly did not leave is tried again, for a day.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import activity

from activities.heartbeat import heartbeating
from perdure.channels.courier import Courier
from perdure.channels.outcomes import DeliveryFailed
from perdure.domain.errors import PerdureError
from perdure.domain.replies import OwedReply, ReplyTo
from perdure.domain.states import DeliveryState
from perdure.domain.steps import StepRequest
from perdure.guard import Guard
from perdure.store import Store
from perdure.store.clock import now
from perdure.store.transcript import TurnResult

#: Answers that are tried again in one round.
MOST = 200
#: A turn's own workflow sends its answer first; this long after its end it did not.
PATIENCE = timedelta(minutes=5)
#: An answer that could not be delivered for so long is of no use to anybody.
GIVEN_UP = timedelta(days=1)

#: What becomes of an answer that policy keeps, or that is not owed.
WITHHELD = "withheld"
NOTHING = "nothing owed"


class Replying:
    """`ReplyActivities`, over the store, the policy and the channels."""

    def __init__(self, store: Store, guard: Guard, courier: Courier) -> None:
        self._store = store
        self._guard = guard
        self._courier = courier

    @activity.defn
    async def deliver_reply(self, owed: OwedReply) -> str:
        """Send the answer of a turn by the channel that its message came with, once. What became
        of it, in one word; what `failed` certainly did not leave, and is tried again by upkeep."""
        async with heartbeating():
            try:
                return await self.deliver(owed)
            except DeliveryFailed:
                return DeliveryState.FAILED

    async def deliver_left_behind(self) -> None:
        """Try again what did not leave, and what a workflow that was terminated left behind. A
        channel that cannot be reached is not tried again in the same round."""
        moment = now()
        away: set[str] = set()
        for owed in await self._store.replies.left_behind(moment - PATIENCE, MOST):
            if owed.ended_at < moment - GIVEN_UP:
                await self._store.replies.settle(owed.session_key, owed.message_id)
            elif owed.channel not in away:
                try:
                    await self.deliver(owed)
                except DeliveryFailed:
                    away.add(owed.channel)

    async def deliver(self, owed: OwedReply) -> str:
        """Send the answer of a turn, once; what became of it.

        Raises:
            DeliveryFailed: when it certainly did not leave, and may be sent again.
        """
        reply_to = await self._store.replies.owed(owed.session_key, owed.message_id)
        result = await self._store.transcript.turn_of(owed.session_key, owed.message_id)
        if reply_to is None or result is None:
            return NOTHING
        became = await self._sent(owed, reply_to, result)
        await self._store.replies.settle(owed.session_key, owed.message_id)
        return became

    async def _sent(self, owed: OwedReply, reply_to: ReplyTo, result: TurnResult) -> str:
        asked = StepRequest(
            session_key=owed.session_key,
            agent=owed.agent,
            turn=result.turn,
            step=result.steps,
            message_id=owed.message_id,
            label=result.label,
        )
        judged = await asyncio.to_thread(
            self._guard.announcement, asked, reply_to.channel, reply_to.recipient, result.text
        )
        await self._store.record(*judged.entries)
        if not judged.goes_on:
            return WITHHELD
        try:
            delivery = await self._courier.send(
                session_key=owed.session_key,
                channel=reply_to.channel,
                recipient=reply_to.recipient,
                text=judged.text,
                label=result.label,
                cause=f"reply/{owed.message_id}",
                turn=result.turn,
                thread=reply_to.thread,
            )
        except DeliveryFailed:
            raise
        except PerdureError as error:
            # Never to be delivered, as where the channel is no more. The ledger tells what it was.
            activity.logger.warning("the reply of turn %d failed: %s", result.turn, error.code)
            return str(error.code)
        return delivery.status
