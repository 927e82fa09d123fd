"""What the workflow and the activities say to each other about a turn: ids, never text.

Invariant: everything here is small whatever the conversation holds, because it is what a
workflow's history keeps.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from perdure.domain.compaction import CompactionDue
from perdure.domain.envelopes import Envelope
from perdure.domain.errors import Code, Refusal
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen
from perdure.domain.runs import EndReason
from perdure.domain.states import ToolStatus, TurnState


class Lane(StrEnum):
    """How a tool call runs: a local activity for what is short and on our own data, an
    activity for what is slow or has effects outside."""

    LOCAL = "local"
    ACTIVITY = "activity"


class RunProfile(Frozen):
    """What a sub-agent's workflow must know of its run: `seconds` until its watchdog ends it.
    `ended` once its result is decided: then the session is like any other. `queued` while it has
    no place, and is not to begin."""

    run_id: str
    parent_key: str
    seconds: float
    ended: bool = False
    queued: bool = False
    #: Why it is to stop, when it was told so before its workflow could hear.
    stop: EndReason | None = None


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
    run: RunProfile | None = None
    #: Whether it has runs that wait, run, or have a result that was not handed over.
    runs: bool = False
    #: Whether facts of its turns are kept in memory.
    remembers: bool = False


class OpenSession(Frozen):
    """Ask for a session's profile. `fresh`: this run carries no state from a run before it."""

    session_key: str
    agent: str
    fresh: bool = True


class StepRequest(Frozen):
    """Make step `step` of turn `turn`, which answers the message `message_id`.

    `joins` are the ids of messages that join the turn at this step. `exchange` is the exchange
    with another session that the turn belongs to; it is taken `aside` when the session's main
    turn is the one that waits.
    """

    session_key: str
    agent: str
    turn: int
    step: int
    message_id: str
    label: Label = Label.PUBLIC
    joins: tuple[str, ...] = ()
    exchange: str | None = None
    aside: bool = False
    #: The session that gets the answer; None when it leaves for a person.
    asked_by: str | None = None
    #: As the message's envelope has it.
    trace: str | None = Field(None, exclude_if=lambda trace: trace is None)
    #: As those of the messages have it that join.
    join_traces: tuple[str, ...] = Field((), exclude_if=lambda traces: not traces)


class PlannedCall(Frozen):
    """The `call`-th tool call of a step (from 0), and how it is to be run."""

    call: int
    tool: str
    lane: Lane = Lane.LOCAL
    timeout: float = 10.0


class StepOutcome(Frozen):
    """What a step came to: tool calls to run, or how the turn ended (`ended`), and for which kind
    of reason (`error`) where it failed; `reached` is the limit of a run that ended it."""

    calls: tuple[PlannedCall, ...] = ()
    ended: TurnState | None = None
    error: Code | None = None
    reached: EndReason | None = None
    #: What a sweep is to be asked for, when the context has grown past its threshold.
    compact: CompactionDue | None = None


class ToolRequest(Frozen):
    """Run the `call`-th tool call of a committed step, of a turn that may be taken `aside`."""

    session_key: str
    agent: str
    turn: int
    step: int
    call: int
    label: Label = Label.PUBLIC
    aside: bool = False


class WaitsFor(StrEnum):
    """What a call waits for before it can be reported."""

    APPROVAL = "approval"
    REPLY = "reply"
    RUNS = "runs"


class Waiting(Frozen):
    """A call that waits, for `seconds` at most, and is then looked at again."""

    approval_id: str | None = None
    seconds: float
    on: WaitsFor = WaitsFor.APPROVAL


class ChildStart(Frozen):
    """A run whose workflow is to be started."""

    run_id: str
    session_key: str
    agent: str
    depth: int


class ToolOutcome(Frozen):
    """What became of a tool call; its result lies in the transcript.

    `label` is the level of what the model will read, and so of the session. `waiting` is set
    while the call has no result because it waits. `start` is the run that the call has spawned;
    `queued` says that it waits for a place. `aside` is a message that the session is to answer on
    the side thread of an exchange, before the call is looked at again.
    """

    status: ToolStatus | None = None
    label: Label = Label.PUBLIC
    waiting: Waiting | None = None
    start: ChildStart | None = None
    queued: bool = False
    aside: Envelope | None = None


class TurnEnd(Frozen):
    """End a turn that did not come to an answer of its own."""

    session_key: str
    turn: int
    message_id: str
    state: TurnState
    reason: Refusal
    label: Label = Label.PUBLIC
    exchange: str | None = None
    aside: bool = False
    #: As the message's envelope has it.
    trace: str | None = Field(None, exclude_if=lambda trace: trace is None)


class ExchangeTurn(Frozen):
    """The turn of a message that another session waits for has ended."""

    session_key: str
    message_id: str
    exchange: str
    label: Label


class RefusedMessage(Frozen):
    """A message of another session that was announced and may not come in."""

    session_key: str
    message_id: str
    exchange: str | None = None
    reason: str


class SessionReset(Frozen):
    """Begin a new epoch: the transcript so far leaves the context, `dropped` are discarded."""

    session_key: str
    request_id: str
    dropped: tuple[str, ...] = ()


class SessionClose(Frozen):
    """Mark a session closed; a message to it opens it again."""

    session_key: str
