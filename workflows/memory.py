"""Memory's own workflows: upkeep now and then, and embedding anew after a change of model.

Invariant: both may be run at any time; what is done already is not done again.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

from activities.memory_stubs import MemoryActivities
from perdure.domain.memory import Reindexed, ReindexRequest, Tended
from workflows.turn import HEARTBEAT_TIMEOUT

_TEND_TIMEOUT = timedelta(minutes=30)
#: A million entries take the bundled model half a day on one core.
_REINDEX_TIMEOUT = timedelta(days=3)
#: A provider that is down for an hour is waited for; the schedule of upkeep comes again anyhow.
_REINDEX_RETRY = RetryPolicy(maximum_attempts=70, maximum_interval=timedelta(minutes=1))
_TEND_RETRY = RetryPolicy(maximum_attempts=3)


@workflow.defn
class MemoryUpkeep:
    """One round of upkeep of every tenant's memory."""

    @workflow.run
    async def run(self) -> Tended:
        """Merge files, bring indexes up to date, remove old versions."""
        return await workflow.execute_activity_method(
            MemoryActivities.tend_memory,
            start_to_close_timeout=_TEND_TIMEOUT,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=_TEND_RETRY,
            summary="tend the memory",
        )


@workflow.defn
class MemoryReindex:
    """Embeds what the configured model has not embedded yet."""

    @workflow.run
    async def run(self, request: ReindexRequest) -> Reindexed:
        """Go on until every entry has its vector; how far it is, the activity's heartbeat says."""
        return await workflow.execute_activity_method(
            MemoryActivities.reindex_memory,
            request,
            start_to_close_timeout=_REINDEX_TIMEOUT,
            heartbeat_timeout=HEARTBEAT_TIMEOUT,
            retry_policy=_REINDEX_RETRY,
            summary="embed what is not embedded",
        )
