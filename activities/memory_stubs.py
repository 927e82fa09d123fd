"""The activities of memory as workflows see them; see `activities.stubs`.

Invariant: this module imports nothing that a workflow may not.
"""

from __future__ import annotations

from typing import Protocol

from temporalio import activity

from perdure.domain.memory import (
    Reindexed,
    ReindexRequest,
    Remembered,
    RememberRequest,
    Tended,
)


class MemoryActivities(Protocol):
    """What is done to memories outside tool calls."""

    @activity.defn
    async def remember(self, request: RememberRequest) -> Remembered:
        """Keep what is worth keeping of a turn."""
        ...

    @activity.defn
    async def reindex_memory(self, request: ReindexRequest) -> Reindexed:
        """Embed what the configured model has not embedded; goes on where an attempt stood."""
        ...

    @activity.defn
    async def tend_memory(self) -> Tended:
        """Merge files, bring indexes up to date, remove old versions, of every tenant."""
        ...
