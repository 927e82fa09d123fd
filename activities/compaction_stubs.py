"""The compaction activity as workflows see it: its name and types, without what stands behind it.

Invariant: this module imports nothing that a workflow may not.
"""

from __future__ import annotations

from typing import Protocol

from temporalio import activity

from perdure.domain.compaction import CompactOutcome, CompactRequest


class CompactionActivities(Protocol):
    """Sweeps over a session's context."""

    @activity.defn
    async def compact(self, request: CompactRequest) -> CompactOutcome:
        """Make summaries until the context is under its threshold, or nothing can be gained."""
        ...
