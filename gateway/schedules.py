"""Temporal Schedules that Perdure itself keeps.

Invariant: one schedule of each kind for each task queue, whichever worker made it, at the
interval that the settings say now.
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
    minutes = settings.delegation.upkeep_minutes
    summary = "runs without a workflow, results past their time"
    await _ensure(temporal, settings, "perdure-upkeep", "Upkeep", minutes, summary)


async def ensure_memory_upkeep(temporal: Client, settings: Settings) -> None:
    """Have memory tended every `memory.upkeep_minutes` minutes.

    Raises:
        RPCError: when the server does not take it.
    """
    minutes = settings.memory.upkeep_minutes
    summary = "files, indexes and old versions of the memory"
    await _ensure(temporal, settings, "perdure-memory", "MemoryUpkeep", minutes, summary)


async def _ensure(
    temporal: Client, settings: Settings, name: str, workflow: str, minutes: float, summary: str
) -> None:
    queue = settings.temporal.queue
    schedule_id = f"{name}/{queue}"
    schedule = Schedule(
        action=ScheduleActionStartWorkflow(
            workflow, id=schedule_id, task_queue=queue, static_summary=summary
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=timedelta(minutes=minutes))]),
    )
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
