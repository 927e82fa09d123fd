"""The activity of replies as workflows see it; see `activities.stubs`."""

from __future__ import annotations

from typing import Protocol

from temporalio import activity

from perdure.domain.replies import OwedReply


class ReplyActivities(Protocol):
    """Answers on their way back to where a message came from."""

    @activity.defn
    async def deliver_reply(self, owed: OwedReply) -> str:
        """Send the answer of a turn by the channel that its message came with, once. What became
        of it, in one word."""
        ...
