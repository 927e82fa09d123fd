"""Keeping the facts of turns in memory, beside the turns that follow.

Invariant: every turn of an agent that remembers is looked at, in order, and no turn waits for it.
What a run of the workflow did not come to the next one does.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.memory_stubs import MemoryActivities
from perdure.domain.memory import RememberRequest
from workflows.state import SessionState

_TIMEOUT = timedelta(minutes=5)
_HEARTBEAT_TIMEOUT = timedelta(seconds=5)
_RETRY = RetryPolicy(
    initial_interval=timedelta(seconds=1),
    maximum_interval=timedelta(seconds=30),
    maximum_attempts=5,
)


class Remembering:
    """Looks at the turns of one session, one after the other."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._work: asyncio.Task[None] | None = None
        #: Set from the session's profile.
        self.on = False

    def begin(self, turn: int | None = None) -> None:
        """Look at a turn that has ended, and at those that are left."""
        if turn is not None and self.on:
            self._state.unremembered.append(turn)
        if self._state.unremembered and (self._work is None or self._work.done()):
            self._work = asyncio.create_task(self._remember())

    async def rest(self) -> None:
        """Stop, before the workflow continues as new; what is left is kept for the next run."""
        if self._work is not None and not self._work.done():
            self._work.cancel()
            await asyncio.wait([self._work])

    async def _remember(self) -> None:
        while self._state.unremembered:
            turn = self._state.unremembered[0]
            try:
                await workflow.execute_activity_method(
                    MemoryActivities.remember,
                    RememberRequest(
                        session_key=self._state.session_key,
                        agent=self._state.agent,
                        turn=turn,
                        label=self._state.label,
                    ),
                    start_to_close_timeout=_TIMEOUT,
                    heartbeat_timeout=_HEARTBEAT_TIMEOUT,
                    retry_policy=_RETRY,
                    summary=f"after turn {turn} · keep its facts",
                )
            except ActivityError as error:
                if is_cancelled_exception(error):
                    return
                workflow.logger.warning("the facts of turn %d are not kept: %s", turn, error)
            del self._state.unremembered[0]
