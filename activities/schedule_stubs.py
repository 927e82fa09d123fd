"""The activity of schedules as workflows see it; see `activities.stubs`."""

from __future__ import annotations

from typing import Protocol

from temporalio import activity

from perdure.domain.schedules import Fired, ScheduledFire


class ScheduleActivities(Protocol):
    """What is done at the times of schedules; run as a local activity."""

    @activity.defn
    async def fire_schedule(self, fire: ScheduledFire) -> Fired:
        """Send the message of a schedule, or have its sub-agent spawned, once for each time."""
        ...
