"""The one state of a session's workflow, carried whole through every continue-as-new.

Invariant: whatever a session must remember between two workflow tasks is here or in the store;
a workflow object holds nothing else that outlives its run.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from perdure.domain.compaction import CompactionDue
from perdure.domain.envelopes import Envelope
from perdure.domain.labels import Label
from perdure.domain.replies import OwedReply
from perdure.domain.runs import EndReason
from perdure.domain.steps import PlannedCall, RefusedMessage, SessionReset


class CurrentTurn(BaseModel):
    """The turn under way: what it answers, the next step to take (from 1), the calls of that step
    that still wait for a person, and whether the turn is to be stopped."""

    model_config = ConfigDict(extra="ignore")

    turn: int
    step: int = 1
    envelope: Envelope
    calls: tuple[PlannedCall, ...] = ()
    interrupted: bool = False
    #: Taken on the side thread of an exchange, while the main turn waits.
    aside: bool = False


class SessionState(BaseModel):
    """What a session's workflow is started with, and continues with.

    `seen` are the ids taken last; together with the store, which knows every message ever taken,
    they make an id run once for ever.
    """

    model_config = ConfigDict(extra="ignore")

    session_key: str
    agent: str
    #: False until a run has read the session's past from the store.
    opened: bool = False
    turn: int = 0
    label: Label = Label.PUBLIC
    inbox: list[Envelope] = []
    #: The senders of what waits, as the inbox knows them, in the order in which they are served.
    ring: list[str] = []
    seen: list[str] = []
    #: What came and may not come in, and is not told yet.
    refused: list[RefusedMessage] = []
    current: CurrentTurn | None = None
    #: Turns to be taken beside the current one, which waits for them.
    asides: list[CurrentTurn] = []
    #: Whether the store may know of something to do for its runs.
    woken: bool = False
    #: Runs whose workflow was started and that have not begun their turn yet.
    started: list[str] = []
    #: The run that this session is, and the session that spawned it.
    run_id: str | None = None
    parent_key: str | None = None
    #: Why the run that this session is has to stop.
    stop: EndReason | None = None
    #: Turns whose facts are still to be kept in memory.
    unremembered: list[int] = []
    #: Turns whose answer is to leave by a channel.
    owed: list[OwedReply] = []
    #: What a step has asked a sweep for, until one is made.
    compact: CompactionDue | None = None
    #: Accepted and not yet carried out.
    resets: list[SessionReset] = []
    closing: bool = False
    #: What the last run knew of the settings, until this one has read them.
    inbox_limit: int = 5_000
    clearance: Label = Label.RESTRICTED
    intake: Label | None = Label.RESTRICTED


class SessionStatus(BaseModel):
    """The answer of the `status` query: what the workflow itself knows."""

    session_key: str
    agent: str
    state: str
    turn: int
    step: int
    inbox: int
    label: Label
