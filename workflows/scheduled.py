"""`Scheduled`: one time of a schedule.

Invariant: it carries the schedule's number and the time, and no text. It ends as soon as the
message is sent; the turn that answers it is the session's.
"""

from __future__ import annotations

from temporalio import workflow
from temporalio.common import SearchAttributeKey

from activities.schedule_stubs import ScheduleActivities
from perdure.domain.schedules import Fired, ScheduledFire, ScheduleRef
from workflows.stored import write

#: The time that a schedule was due, as Temporal notes it at what it starts.
_DUE = SearchAttributeKey.for_datetime("TemporalScheduledStartTime")


@workflow.defn
class Scheduled:
    """Does what a schedule says, once for the time that started it."""

    @workflow.run
    async def run(self, schedule: ScheduleRef) -> Fired:
        """Send, or spawn."""
        due = workflow.info().typed_search_attributes.get(_DUE) or workflow.info().start_time
        fire = ScheduledFire(number=schedule.number, at=due)
        fired = await write(ScheduleActivities.fire_schedule, fire, "send")
        workflow.set_current_details(f"{fired.outcome} · {fired.message_id or fired.run_id or ''}")
        return fired
