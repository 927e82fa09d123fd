"""What a workflow and the compaction activity say to each other: figures, never text.

Invariant: small whatever the conversation holds, because a workflow's history keeps it.
"""

from __future__ import annotations

from enum import StrEnum

from perdure.domain.labels import Label
from perdure.domain.messages import Frozen


class CompactionDue(Frozen):
    """A step has found that a sweep can make its session's context smaller.

    `budget` is what the history may take, in estimated tokens. `urgent`: it takes more than that,
    so that the next step would not see all of it.
    """

    budget: int
    urgent: bool = False


class CompactRequest(Frozen):
    """Bring a session's context under its threshold, as far as one sweep can.

    `turn` is the newest turn there is, `label` the session's live label. `budget` is what the
    history may take, in estimated tokens; None leaves it to the agent's settings. With `urgent` the
    turn `turn`, under way or about to begin, sees at once what is published; else the one after it
    is the first to see it.
    """

    session_key: str
    agent: str
    turn: int
    label: Label = Label.PUBLIC
    budget: int | None = None
    urgent: bool = False


class SweepEnd(StrEnum):
    """Why a sweep ended."""

    #: The context is not over its threshold.
    BELOW = "below"
    #: It is over the threshold, and nothing can be gained until something changes.
    EXHAUSTED = "exhausted"
    #: It has made as many passes as one sweep may.
    PASSES = "passes"
    #: It has taken as long as one sweep may.
    TIME = "time"
    #: It was stopped.
    STOPPED = "stopped"


class CompactOutcome(Frozen):
    """What a sweep came to. Tokens are those of the context it worked on, before and after."""

    ended: SweepEnd
    published: int = 0
    fallbacks: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
