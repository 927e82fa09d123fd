"""What is told of a schedule: what it does, when, and what it did.

Invariant: what is told of its times is Temporal's own word; nothing is worked out here.
"""

from __future__ import annotations

from datetime import datetime

from temporalio.client import ScheduleDescription

from perdure.domain.labels import Label, can_flow
from perdure.domain.messages import Frozen
from perdure.domain.schedules import Overlap, ScheduleKind
from perdure.shapes import ABOVE
from perdure.store.schedules import ScheduleRow

#: Next times that are told.
_NEXT = 5


class ScheduleView(Frozen):
    """A schedule: what it does, when, and what it did. Times are UTC, `every` is seconds.

    `state` is `missing` where Temporal does not know it, as after its database was lost.
    """

    name: str
    tenant: str
    kind: ScheduleKind
    session_key: str
    agent: str | None
    text: str
    label: Label
    cron: str | None
    every: float | None
    timezone: str
    overlap: Overlap
    catch_up: float | None
    state: str
    note: str
    next_at: tuple[datetime, ...]
    last_at: datetime | None
    times: int
    created_by: str
    created_at: datetime


class ScheduleList(Frozen):
    """A page of schedules, by tenant and name, and how many there are in all."""

    schedules: tuple[ScheduleView, ...]
    total: int


def view_of(row: ScheduleRow, found: ScheduleDescription | None, level: Label) -> ScheduleView:
    """A schedule as the store and Temporal know it, for one who may be told up to `level`."""
    shown = can_flow(row.label, level)
    info = None if found is None else found.info
    next_at = info.next_action_times if info and _state(found) == "active" else []
    return ScheduleView(
        **row.model_dump(exclude={"number", "text"}),
        text=row.text if shown else ABOVE.format(row.label),
        state=_state(found),
        note=found.schedule.state.note or "" if found else "",
        catch_up=_seconds(found),
        next_at=tuple(next_at[:_NEXT]),
        last_at=_last(found),
        times=info.num_actions if info else 0,
    )


def _state(found: ScheduleDescription | None) -> str:
    if found is None:
        return "missing"
    return "paused" if found.schedule.state.paused else "active"


def _last(found: ScheduleDescription | None) -> datetime | None:
    recent = found.info.recent_actions if found else ()
    return recent[-1].scheduled_at if recent else None


def _seconds(found: ScheduleDescription | None) -> float | None:
    window = found.schedule.policy.catchup_window if found else None
    return window.total_seconds() if window else None
