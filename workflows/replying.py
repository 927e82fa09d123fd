"""Answers that leave by a channel, beside the turns that follow.

Invariant: they leave in the order of their turns, and no turn waits for them. What a run of the
workflow did not come to the next one does.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from activities.reply_stubs import ReplyActivities
from workflows.state import SessionState

#: A delivery with all its tries takes less.
_TIMEOUT = timedelta(minutes=3)
_HEARTBEAT_TIMEOUT = timedelta(seconds=5)
#: Of workers that die. A receiver that is away is tried again by upkeep.
_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=200),
    maximum_interval=timedelta(seconds=30),
    maximum_attempts=10,
)


class Replying:
    """Sends the answers of one session, one after the other."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._resting = False
        self._work: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Send what is owed, if that is not under way."""
        self._resting = False
        if self._state.owed and (self._work is None or self._work.done()):
            self._work = asyncio.create_task(self._reply())

    async def rest(self) -> None:
        """Finish what is under way, since what is stopped on its way out may have left; what is
        left is kept for the next run."""
        self._resting = True
        if self._work is not None:
            await asyncio.wait([self._work])

    async def _reply(self) -> None:
        while self._state.owed and not self._resting:
            owed = self._state.owed[0]
            try:
                await workflow.execute_activity_method(
                    ReplyActivities.deliver_reply,
                    owed,
                    start_to_close_timeout=_TIMEOUT,
                    heartbeat_timeout=_HEARTBEAT_TIMEOUT,
                    retry_policy=_RETRY,
                    summary=f"after turn {owed.turn} · reply",
                )
            except ActivityError as error:
                workflow.logger.warning("the reply of turn %d did not leave: %s", owed.turn, error)
            self._state.owed.remove(owed)
