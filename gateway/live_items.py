"""What a `LiveSession` tells: turns, text, tool calls, approvals and runs, as they happen.

Invariant: an item is a fact that a reader can show by itself; `type` names it in JSON.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from perdure.domain.approvals import ApprovalState
from perdure.domain.messages import Frozen
from perdure.domain.states import ToolStatus
from perdure.store.transcript import TurnResult


class _Item(Frozen):
    """`cursor` is where to go on after this item: `LiveSession(…, after=cursor)` misses nothing,
    and tells the text of a step under way anew, after a `Restart`."""

    cursor: int
    turn: int


class TurnStarted(_Item):
    """A turn has taken the message that it answers."""

    type: Literal["turn_started"] = "turn_started"
    message_id: str


class TextDelta(_Item):
    """More text of a step. `committed`: the rest of it, which nobody has judged as an answer unless
    the turn ends with it; what was streamed before was let out piece by piece."""

    type: Literal["text_delta"] = "text_delta"
    step: int
    text: str
    committed: bool = False


class Restart(_Item):
    """All text of this step so far is void: it is being said anew, or was never committed."""

    type: Literal["restart"] = "restart"
    step: int


class ToolStarted(_Item):
    """A tool call begins. `call` numbers it in its step; `arguments` is the model's JSON text."""

    type: Literal["tool_started"] = "tool_started"
    step: int
    call: int
    tool: str
    arguments: str


class ToolEnded(_Item):
    """A tool call has its result. `error` says why when the status is not ok."""

    type: Literal["tool_ended"] = "tool_ended"
    step: int
    call: int
    tool: str
    status: ToolStatus
    seconds: float | None
    error: str | None = None


class ApprovalAsked(_Item):
    """A tool call waits for a person's approval, and so does the turn."""

    type: Literal["approval_asked"] = "approval_asked"
    step: int
    call: int
    tool: str
    approval_id: str
    expires_at: datetime


class ApprovalSettled(_Item):
    """An approval is decided, or nobody has to decide it any more."""

    type: Literal["approval_settled"] = "approval_settled"
    step: int
    call: int
    approval_id: str
    state: ApprovalState


class Retrying(_Item):
    """A model call has failed and is made again after `delay` seconds."""

    type: Literal["retrying"] = "retrying"
    step: int
    attempt: int
    delay: float
    reason: str


class TurnEnded(_Item):
    """A turn is over; `result` says how, with its whole answer."""

    type: Literal["turn_ended"] = "turn_ended"
    result: TurnResult


class MessageDropped(_Item):
    """A waiting message was discarded, and no turn will answer it. `turn` is 0."""

    type: Literal["message_dropped"] = "message_dropped"
    message_id: str
    reason: str


class MessageJoined(_Item):
    """A message was taken into the turn under way, before `step`."""

    type: Literal["message_joined"] = "message_joined"
    step: int
    message_id: str


class RunChange(StrEnum):
    """What a run has come to."""

    QUEUED = "queued"
    STARTED = "started"
    STOPPING = "stopping"
    STEERED = "steered"
    ENDED = "ended"
    #: Its result is kept, and was not handed to the session.
    KEPT = "kept"


class RunChanged(_Item):
    """A run of this session has come further; `turn` is 0: it may be between two turns.

    `reason` is why it stops, ended or is kept, `successor` the run that took its place.
    """

    type: Literal["run_changed"] = "run_changed"
    run_id: str
    change: RunChange
    reason: str | None = None
    successor: str | None = None


LiveItem = Annotated[
    TurnStarted
    | TextDelta
    | Restart
    | ToolStarted
    | ToolEnded
    | ApprovalAsked
    | ApprovalSettled
    | Retrying
    | TurnEnded
    | MessageDropped
    | MessageJoined
    | RunChanged,
    Field(discriminator="type"),
]
