"""Short writes to a session's own rows, as local activities.

Invariant: a write is tried for about an hour and then fails the run. Nothing is lost by that:
what waits lies in the mailbox, and the next message starts a run that picks it up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy

Request = TypeVar("Request")
Result = TypeVar("Result")

_RETRY = RetryPolicy(
    initial_interval=timedelta(milliseconds=100),
    maximum_interval=timedelta(minutes=1),
    maximum_attempts=70,
)
_TIMEOUT = timedelta(seconds=30)


async def write(
    activity: Callable[[Any, Request], Awaitable[Result]], request: Request, summary: str
) -> Result:
    """Run one short activity of our own store, named `summary` in the Temporal UI."""
    return await workflow.execute_local_activity_method(
        activity,
        request,
        start_to_close_timeout=_TIMEOUT,
        retry_policy=_RETRY,
        summary=summary,
    )
