"""The life of a run, a sub-agent's work on one task: how far it has come and how it ended.

Invariant: both sets are closed, and a run that has ended has exactly one reason for it.
"""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    """How far a run has come. It only goes forward; `ended` is final."""

    #: Accepted, and waiting until fewer runs of its parent are under way.
    QUEUED = "queued"
    RUNNING = "running"
    #: Told to stop, itself or with a run above it; nothing new begins in it.
    STOPPING = "stopping"
    ENDED = "ended"


class EndReason(StrEnum):
    """Why a run ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    KILLED = "killed"
    #: It took longer than its wall clock allows.
    WATCHDOG_TIMEOUT = "watchdog_timeout"
    STEP_LIMIT = "step_limit"
    #: The tokens or the money it was allowed are used up.
    BUDGET = "budget"
    #: It said that it was done, twice, and outputs that were expected are not there.
    MISSING_OUTPUTS = "missing_outputs"
    #: Found without a workflow that would ever end it.
    SWEPT = "swept"


class RunStatus(StrEnum):
    """A run in one word, as whoever asks for it reads it."""

    QUEUED = "queued"
    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    KILLED = "killed"


def status_of(state: RunState, reason: EndReason | None = None) -> RunStatus:
    """The one word for a run in `state`, which ended for `reason` if it has ended.

    Whatever ended a run otherwise than completed or killed is a failure; the reason says which.
    """
    if state is not RunState.ENDED:
        return RunStatus(state.value)
    if reason is EndReason.COMPLETED:
        return RunStatus.COMPLETED
    return RunStatus.KILLED if reason is EndReason.KILLED else RunStatus.FAILED
