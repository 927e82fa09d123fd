"""What is to be done again and again: the shapes that workflows, activities and gateways share.

Invariant: what rides in Temporal names a schedule by its number; its text lies in the store.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from perdure.domain.messages import Frozen


class ScheduleKind(StrEnum):
    """What a schedule does at its time."""

    #: Sends its text to a session, as a person would.
    MESSAGE = "message"
    #: Has a session spawn a sub-agent, whose result comes to the session as a message.
    SPAWN = "spawn"


class Overlap(StrEnum):
    """What a schedule does while the message of an earlier time still waits for its turn."""

    #: Nothing: what waits says it already.
    SKIP = "skip"
    #: The same as ever; the session answers one after the other.
    QUEUE = "queue"


class FireOutcome(StrEnum):
    """What came of one time of a schedule."""

    SENT = "sent"
    SPAWNED = "spawned"
    #: The message of an earlier time still waits.
    SKIPPED = "skipped"
    #: The schedule was removed meanwhile.
    REMOVED = "removed"


class ScheduleRef(Frozen):
    """A schedule, as Temporal knows it."""

    number: int


class ScheduledFire(Frozen):
    """One time of a schedule."""

    number: int
    at: datetime


class Fired(Frozen):
    """What came of it."""

    outcome: FireOutcome
    message_id: str | None = None
    run_id: str | None = None
