"""How a failure leaves an activity: for another attempt, and by its name only.

Invariant: what goes into a workflow's history names models, kinds and codes. A provider's words
may quote the conversation; they stay in the transcript, the outbox and the log.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio.exceptions import ApplicationError

from perdure.models import ModelFailure


def another_attempt(error: ModelFailure, delay: float) -> ApplicationError:
    """The failure that makes Temporal try again after `delay` seconds."""
    return ApplicationError(
        error.brief,
        type=error.code,
        next_retry_delay=timedelta(seconds=delay),
    )
