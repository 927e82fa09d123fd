"""Temporal Schedules that Perdure itself keeps.

Invariant: one schedule of upkeep for each task queue, whichever worker made it, at the interval
that the settings say now.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleSpec,
    ScheduleUpdate,
    ScheduleUpdateInput,
)

from perdure.config import Settings


async def ensure_upkeep(temporal: Client, settings: Settings) -> None:
    """Have upkeep done every `delegation.upkeep_minutes` minutes.

    Raises:
        RPCError: when the server does not take it.
    """
    queue = settings.temporal.queue
    schedule = Schedule(
        action=ScheduleActionStartWorkflow(
            "Upkeep",
            id=f"perdure-upkeep/{queue}",
            task_queue=queue,
            static_summary="runs without a workflow, results past their time",
        ),
        spec=ScheduleSpec(
            intervals=[
                ScheduleIntervalSpec(every=timedelta(minutes=settings.delegation.upkeep_minutes))
            ]
        ),
    )
    schedule_id = f"perdure-upkeep/{queue}"
    try:
        await temporal.create_schedule(schedule_id, schedule)
    except ScheduleAlreadyRunningError:
        await temporal.get_schedule_handle(schedule_id).update(
            lambda known: _at_interval(known, schedule)
        )


def _at_interval(known: ScheduleUpdateInput, wanted: Schedule) -> ScheduleUpdate | None:
    current = known.description.schedule
    if current.spec.intervals == wanted.spec.intervals:
        return None
    # A person may have paused it: only its times are ours.
    current.spec = wanted.spec
    return ScheduleUpdate(schedule=current)
