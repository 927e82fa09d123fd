"""What a session did, looked at from outside: its rows, its events, its Temporal history."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Row, Table, select
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import PendingActivityInfo

from activities.post import workflow_id
from perdure.domain.states import EventKind
from perdure.store.deltas import LEASE
from perdure.store.outbox import Event
from perdure.store.tables import deltas, messages, steps, tool_claims, turns
from perdure.store.transcript import HistoryMessage
from perdure.workspace import Workspace
from tests.support.stack import Stack, until
from workflows.session import Session


async def rows(stack: Stack, table: Table, key: str) -> list[Row[Any]]:
    """The rows of a session in a table, by their primary key."""
    query = select(table).where(table.c.session_key == key).order_by(*table.primary_key)
    return await stack.client.store.database.read(lambda c: list(c.execute(query)))


async def step_rows(stack: Stack, key: str) -> list[Row[Any]]:
    """A session's model steps."""
    return await rows(stack, steps, key)


async def message_rows(stack: Stack, key: str) -> list[Row[Any]]:
    """A session's messages."""
    return await rows(stack, messages, key)


async def turn_rows(stack: Stack, key: str) -> list[Row[Any]]:
    """A session's turns."""
    return await rows(stack, turns, key)


async def claim_rows(stack: Stack, key: str) -> list[Row[Any]]:
    """A session's tool claims."""
    return await rows(stack, tool_claims, key)


async def delta_rows(stack: Stack, key: str) -> list[Row[Any]]:
    """The streamed text that a session still has."""
    return await rows(stack, deltas, key)


@asynccontextmanager
async def listening(stack: Stack, key: str) -> AsyncIterator[None]:
    """Listen to a session's streamed text, with a lease that is renewed during the block."""
    deltas = stack.client.store.deltas

    async def renew() -> None:
        while True:
            await deltas.listen(key, "test")
            await asyncio.sleep(LEASE / 3)

    renewing = asyncio.create_task(renew())
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        await deltas.leave(key, "test")


async def events(stack: Stack, key: str, kind: EventKind | None = None) -> list[Event]:
    """A session's events so far."""
    page = await stack.client.store.outbox.page(key)
    return [event for event in page if kind in (None, event.kind)]


async def event(stack: Stack, key: str, kind: EventKind, timeout: float = 60) -> Event:
    """A session's first event of a kind, as soon as there is one."""
    async with (
        asyncio.timeout(timeout),
        aclosing(stack.client.store.outbox.follow(key, 0)) as following,
    ):
        async for found in following:
            if found.kind is kind:
                return found
    raise AssertionError("an outbox never ends")


async def transcript(stack: Stack, key: str) -> list[HistoryMessage]:
    """A session's newest 200 messages, in order."""
    return list((await stack.client.history(key, limit=200)).messages)


async def results(stack: Stack, key: str) -> list[str]:
    """The texts of a session's tool results, in the transcript's order."""
    return [message.text for message in await transcript(stack, key) if message.role == "tool"]


def code_of(result: str) -> str:
    """The code of the refusal that a tool result is."""
    return str(json.loads(result)["error"]["code"])


def workspace(stack: Stack, key: str) -> Path:
    """The folder of a session's files."""
    return Workspace.for_session(stack.home, key).root


async def history(stack: Stack, key: str) -> list[HistoryEvent]:
    """The Temporal history of a session's newest run."""
    handle = stack.client.temporal.get_workflow_handle(workflow_id(key))
    return list((await handle.fetch_history()).events)


async def history_bytes(stack: Stack, key: str) -> int:
    """What Temporal keeps of a session, in bytes; for a session that is still in its first run."""
    first, *_ = await history(stack, key)
    assert not first.workflow_execution_started_event_attributes.continued_execution_run_id
    handle = stack.client.temporal.get_workflow_handle(workflow_id(key))
    described = await handle.describe()
    return described.raw_description.workflow_execution_info.history_size_bytes


async def at_rest(stack: Stack, key: str) -> bool:
    """Whether the session's workflow itself knows that nothing is under way."""
    handle = stack.client.temporal.get_workflow_handle(workflow_id(key))
    return (await handle.query(Session.status)).state == "idle"


async def attempts(stack: Stack, key: str, activity: str) -> list[int]:
    """The attempts that each finished activity of a type took, once the workflow rests: the store
    has an answer before Temporal hears of it."""
    await until(lambda: at_rest(stack, key))
    found = await history(stack, key)
    scheduled = {
        entry.event_id
        for entry in found
        if entry.activity_task_scheduled_event_attributes.activity_type.name == activity
    }
    return [
        entry.activity_task_started_event_attributes.attempt
        for entry in found
        if entry.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED
        and entry.activity_task_started_event_attributes.scheduled_event_id in scheduled
    ]


async def pending(stack: Stack, key: str) -> list[PendingActivityInfo]:
    """The activities that Temporal shows as under way."""
    handle = stack.client.temporal.get_workflow_handle(workflow_id(key))
    return list((await handle.describe()).raw_description.pending_activities)
