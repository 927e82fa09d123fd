"""What the workflow and the activities say to each other about a turn: ids, never text.

Invariant: everything here is small whatever the conversation holds, because it is what a
workflow's history keeps.
"""

from __future__ import annotations

from enum import StrEnum

from perdure.domain.envelopes import Envelope
from perdure.domain.errors import Code, Refusal
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen
from perdure.domain.states import ToolStatus, TurnState


class Lane(StrEnum):
    """How a tool call runs: a local activity for what is short and on our own data, an
    activity for what is slow or has effects outside."""

    LOCAL = "local"
    ACTIVITY = "activity"


class SessionProfile(Frozen):
    """What a session's workflow learns from the store and the settings when a run begins."""

    agent: str
    turn: int = 0
    label: Label = Label.PUBLIC
    clearance: Label = Label.CONFIDENTIAL
    #: The highest label that other sessions may send without it being there; None is its own.
    intake: Label | None = None
    pending: tuple[Envelope, ...] = ()
    inbox_limit: int
    turns_per_run: int
    step_attempts: int
    step_timeout: float


class OpenSession(Frozen):
    """Ask for a session's profile. `fresh`: this run carries no state from a run before it."""

    session_key: str
    agent: str
    fresh: bool = True


class StepRequest(Frozen):
    """Make step `step` of turn `turn`, which answers the message `message_id`."""

    session_key: str
    agent: str
    turn: int
    step: int
    message_id: str
    label: Label = Label.PUBLIC


class PlannedCall(Frozen):
    """The `call`-th tool call of a step (from 0), and how it is to be run."""

    call: int
    tool: str
    lane: Lane = Lane.LOCAL
    timeout: float = 10.0


class StepOutcome(Frozen):
    """What a step came to: tool calls to run, or how the turn ended (`ended`), and for which kind
    of reason (`error`) where it failed."""

    calls: tuple[PlannedCall, ...] = ()
    ended: TurnState | None = None
    error: Code | None = None


class ToolRequest(Frozen):
    """Run the `call`-th tool call of a committed step."""

    session_key: str
    agent: str
    turn: int
    step: int
    call: int
    label: Label = Label.PUBLIC


class Waiting(Frozen):
    """A call that waits for a person, for `seconds` at most."""

    approval_id: str
    seconds: float


class ToolOutcome(Frozen):
    """What became of a tool call; its result lies in the transcript.

    `label` is the level of what the model will read, and so of the session. `waiting` is set
    while the call has not run because it waits for an approval.
    """

    status: ToolStatus | None = None
    label: Label = Label.PUBLIC
    waiting: Waiting | None = None


class TurnEnd(Frozen):
    """End a turn that did not come to an answer of its own."""

    session_key: str
    turn: int
    message_id: str
    state: TurnState
    reason: Refusal
    label: Label = Label.PUBLIC


class SessionReset(Frozen):
    """Begin a new epoch: the transcript so far leaves the context, `dropped` are discarded."""

    session_key: str
    request_id: str
    dropped: tuple[str, ...] = ()


class SessionClose(Frozen):
    """Mark a session closed; a message to it opens it again."""

    session_key: str
