"""How a refusal leaves an activity: as a failure that Temporal can read and retry by.

Invariant: what goes into a workflow's history names limits and ids, never conversation text.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio.exceptions import ApplicationError

from perdure.domain.errors import PerdureError


def failure(
    error: PerdureError, *, retryable: bool = False, delay: float | None = None
) -> ApplicationError:
    """`error` as an activity failure; `delay` seconds until the next attempt, if retryable."""
    return ApplicationError(
        error.message,
        error.refusal,
        type=error.code,
        non_retryable=not retryable,
        next_retry_delay=None if delay is None else timedelta(seconds=delay),
    )
