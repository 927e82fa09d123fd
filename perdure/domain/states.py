"""The states things can be in. Closed sets: an unknown state is an error, not a string."""

from __future__ import annotations

from enum import StrEnum


class SessionState(StrEnum):
    """What a session is doing now."""

    IDLE = "idle"
    RUNNING = "running"
    WAITING = "waiting"
    CLOSED = "closed"


class TurnState(StrEnum):
    """How far a turn has come; all but `running` are final."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class ToolStatus(StrEnum):
    """What became of a tool call.

    `unknown` is the honest answer for an effect whose process died before it could report.
    """

    OK = "ok"
    ERROR = "error"
    UNKNOWN = "unknown"


class DeliveryState(StrEnum):
    """How far a message to the outside has come.

    `failed` is certain: nothing arrived. Whatever is not certain is `unknown`.
    """

    BEGUN = "begun"
    SENT = "sent"
    CONFIRMED = "confirmed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    WITHHELD = "withheld"


class EventKind(StrEnum):
    """Events of the outbox, each written in the transaction of the change it tells."""

    SESSION_OPENED = "session.opened"
    SESSION_RESET = "session.reset"
    SESSION_CLOSED = "session.closed"
    MESSAGE_DROPPED = "message.dropped"
    MESSAGE_JOINED = "message.joined"
    LABEL_RAISED = "label.raised"
    CONTEXT_COMPACTED = "context.compacted"
    CONTEXT_REPAIRED = "context.repaired"
    TURN_STARTED = "turn.started"
    STEP_STARTED = "step.started"
    STEP_RETRYING = "step.retrying"
    STEP_COMPLETED = "step.completed"
    TOOL_STARTED = "tool.started"
    TOOL_COMPLETED = "tool.completed"
    APPROVAL_REQUESTED = "approval.requested"
    APPROVAL_DECIDED = "approval.decided"
    TURN_COMPLETED = "turn.completed"
    TURN_FAILED = "turn.failed"
    TURN_INTERRUPTED = "turn.interrupted"
    RUN_QUEUED = "run.queued"
    RUN_STARTED = "run.started"
    RUN_STOPPING = "run.stopping"
    RUN_STEERED = "run.steered"
    RUN_ENDED = "run.ended"
    #: Its result is kept, and was not handed to the session.
    RUN_KEPT = "run.kept"
    EXCHANGE_OPENED = "exchange.opened"
    EXCHANGE_ENDED = "exchange.ended"
    DELIVERY_BEGUN = "delivery.begun"
    DELIVERY_SENT = "delivery.sent"
    DELIVERY_FAILED = "delivery.failed"
    DELIVERY_UNKNOWN = "delivery.unknown"
    DELIVERY_WITHHELD = "delivery.withheld"


#: The events that end a turn, and so a wait for its answer.
TURN_ENDS = frozenset({EventKind.TURN_COMPLETED, EventKind.TURN_FAILED, EventKind.TURN_INTERRUPTED})
