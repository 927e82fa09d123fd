"""The activities as workflows see them: names and types, without what stands behind them.

Invariant: this module imports nothing that a workflow may not; `worker.py` checks, by assigning
the real ones to these protocols, that both sides mean the same.
"""

from __future__ import annotations

from typing import Protocol

from temporalio import activity

from perdure.domain.compaction import CompactOutcome, CompactRequest
from perdure.domain.delegation import Conclude, Concluded, Supervise, Supervision, UpkeepReport
from perdure.domain.steps import (
    ExchangeTurn,
    OpenSession,
    RefusedMessage,
    SessionClose,
    SessionProfile,
    SessionReset,
    StepOutcome,
    StepRequest,
    ToolOutcome,
    ToolRequest,
    TurnEnd,
)


class SessionActivities(Protocol):
    """Short writes to a session's own rows; run as local activities."""

    @activity.defn
    async def open_session(self, request: OpenSession) -> SessionProfile:
        """The session's profile; the session itself is made if it is new."""
        ...

    @activity.defn
    async def end_turn(self, end: TurnEnd) -> None:
        """End a turn that came to no answer, with its reason in the transcript."""
        ...

    @activity.defn
    async def reset_session(self, request: SessionReset) -> None:
        """Begin a new epoch of the session."""
        ...

    @activity.defn
    async def close_session(self, request: SessionClose) -> None:
        """Mark the session closed."""
        ...


class RunActivities(Protocol):
    """The runs of sub-agents."""

    @activity.defn
    async def supervise(self, request: Supervise) -> Supervision:
        """What there is to do for the runs of a session. Run as a local activity."""
        ...

    @activity.defn
    async def conclude_run(self, request: Conclude) -> Concluded:
        """Check, condense, keep and hand over the result of a run."""
        ...


class CompactionActivities(Protocol):
    """The compaction of contexts."""

    @activity.defn
    async def compact(self, request: CompactRequest) -> CompactOutcome:
        """Make one bounded sweep over a session's context."""
        ...


class UpkeepActivities(Protocol):
    """What a schedule has done now and then."""

    @activity.defn
    async def reconcile_runs(self) -> UpkeepReport:
        """End the runs that nothing else will end, and have their results handed over."""
        ...

    @activity.defn
    async def sweep_results(self) -> UpkeepReport:
        """Remove the files of whole results whose time is over."""
        ...


class ExchangeActivities(Protocol):
    """Messages that other sessions wait for; run as local activities."""

    @activity.defn
    async def reply(self, turn: ExchangeTurn) -> None:
        """Record that a message has its answer, and wake the session that waits for it."""
        ...

    @activity.defn
    async def refuse(self, refused: RefusedMessage) -> None:
        """Drop a message that may not come in, and wake the session that waits for its answer."""
        ...


class StepActivities(Protocol):
    """The model step."""

    @activity.defn
    async def take_step(self, request: StepRequest) -> StepOutcome:
        """Take the message, assemble the context, call the model, commit the answer, once."""
        ...


class ToolActivities(Protocol):
    """Tool calls, run by either lane."""

    @activity.defn
    async def run_tool(self, request: ToolRequest) -> ToolOutcome:
        """Claim, run, seal."""
        ...

    @activity.defn
    async def abandon_tool(self, request: ToolRequest) -> ToolOutcome:
        """Report a call whose every attempt died as of unknown outcome."""
        ...
