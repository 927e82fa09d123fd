"""Heartbeats, and what a cancellation means.

Invariant: an activity that may take long beats from its first instant, before any set-up, so a
dead worker is noticed in seconds and slow set-up is not mistaken for death.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio import activity
from temporalio.exceptions import ApplicationError

#: Seconds between two heartbeats.
INTERVAL = 1.0


@asynccontextmanager
async def heartbeating() -> AsyncIterator[None]:
    """Beat every `INTERVAL` while the block runs; does nothing in a local activity."""
    if activity.info().is_local:
        yield
        return
    beating = asyncio.create_task(_beat(), name="heartbeat")
    try:
        yield
    finally:
        beating.cancel()


async def _beat() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(INTERVAL)


def absorb_stop() -> None:
    """Call on `CancelledError`: returns when a person stopped this activity, which then goes on
    to keep what it has.

    Raises:
        ApplicationError: retryable at once, when the worker is shutting down: a deploy is no
            one's stop.
        asyncio.CancelledError: when the server gave the activity up; another attempt runs.
    """
    details = activity.cancellation_details()
    task = asyncio.current_task()
    if details is not None and details.cancel_requested:
        if task is not None:
            task.uncancel()
        return
    if activity.is_worker_shutdown() or (details is not None and details.worker_shutdown):
        if task is not None:
            task.uncancel()
        raise ApplicationError(
            "The worker is shutting down; another one takes over.",
            type="worker_shutdown",
            next_retry_delay=timedelta(milliseconds=100),
        ) from None  # history would keep the stack of all that was cancelled
    raise asyncio.CancelledError
