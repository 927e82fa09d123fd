"""Compaction of a session's context, beside its turns.

Invariant: at most one sweep at a time, and no turn waits for it: what it publishes is seen from
the next turn on. A run of the workflow ends after its sweep, which is bounded.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from activities.stubs import CompactionActivities
from perdure.domain.compaction import CompactionDue, CompactRequest
from workflows.state import SessionState

#: A sweep is bounded to two minutes; the rest is for a machine that is busy.
_TIMEOUT = timedelta(minutes=5)
_HEARTBEAT_TIMEOUT = timedelta(seconds=5)
#: What a sweep publishes it publishes once; one that fails is made again when a turn asks.
_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_attempts=5)


class Compaction:
    """Sweeps the context of one session when a step has found it full."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._sweep: asyncio.Task[None] | None = None

    @property
    def under_way(self) -> bool:
        """Whether a sweep is made right now."""
        return self._sweep is not None and not self._sweep.done()

    def begin(self) -> None:
        """Make a sweep if one is due and none is under way."""
        due = self._state.compact
        if due is not None and not self.under_way:
            self._state.compact = None
            self._sweep = asyncio.create_task(self._make(due))

    async def _make(self, due: CompactionDue) -> None:
        turn = self._state.turn
        try:
            await workflow.execute_activity_method(
                CompactionActivities.compact,
                CompactRequest(
                    session_key=self._state.session_key,
                    agent=self._state.agent,
                    turn=turn,
                    label=self._state.label,
                    budget=due.budget,
                ),
                start_to_close_timeout=_TIMEOUT,
                heartbeat_timeout=_HEARTBEAT_TIMEOUT,
                retry_policy=_RETRY,
                summary=f"after turn {turn} · compact the context",
            )
        except ActivityError as error:
            workflow.logger.warning("a sweep failed: %s", error)
