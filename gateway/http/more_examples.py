"""Examples of what stands beside sessions: schedules, webhooks, the codec.

Invariant: as in `gateway.http.examples`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pydantic import BaseModel

from gateway.hooks.reception import Taken
from gateway.http.codec import WirePayload, WirePayloads
from gateway.http.schedules import AddSchedule, SchedulePage
from gateway.schedule_views import ScheduleView
from perdure.domain.labels import Label
from perdure.domain.schedules import Overlap, ScheduleKind

_AT = datetime(2026, 1, 1, 12, tzinfo=UTC)

_schedule = ScheduleView(
    name="standup",
    tenant="default",
    kind=ScheduleKind.MESSAGE,
    session_key="default:bob",
    agent=None,
    text="What is new since yesterday?",
    label=Label.PUBLIC,
    cron="0 9 * * MON-FRI",
    every=None,
    timezone="Europe/Berlin",
    overlap=Overlap.SKIP,
    catch_up=600.0,
    state="active",
    note="",
    next_at=(_AT + timedelta(hours=20),),
    last_at=None,
    times=0,
    created_by="user",
    created_at=_AT,
)

_ALL: tuple[BaseModel, ...] = (
    AddSchedule(
        name="standup",
        session_key="default:bob",
        text="What is new since yesterday?",
        cron="0 9 * * MON-FRI",
        timezone="Europe/Berlin",
    ),
    _schedule,
    SchedulePage(schedules=(_schedule,), total=1),
    Taken(status="accepted"),
    WirePayloads(
        payloads=(WirePayload(metadata={"encoding": "anNvbi9wbGFpbg=="}, data="ImhlbGxvIg=="),)
    ),
)

#: By the name of what they are examples of, as the document has it.
EXAMPLES = {type(one).__name__: one for one in _ALL}
