"""Exchanges: what one session says to another and waits for; their ids, states and results.

Invariant: every id follows from the place of the call that sends, so a call that is run again
names the same message, and nothing is said twice.
"""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum

from perdure.domain.messages import Frozen
from perdure.domain.steps import ToolRequest

#: Written by either side, it ends an exchange once its answer is read. It is stripped.
SKIP = "ANNOUNCE_SKIP"
#: How the id of a message begins that brings an answer after the wait for it has ended.
LATE = "late_"
#: How the id of an exchange begins that a person leads in the name of a session.
TOLD = "tel_"
#: How the id of a message begins that was withheld until a person approved it.
RELEASED = "rel_"

_SKIP = re.compile(rf"[ \t]*\b{SKIP}\b")


class Mode(StrEnum):
    """How a session sends."""

    #: Deliver, and go on.
    FIRE_AND_FORGET = "fire-and-forget"
    #: Deliver, and wait for the answer.
    WAIT = "wait"
    #: Deliver, and go on answering each other.
    PING_PONG = "ping-pong"


class ExchangeState(StrEnum):
    """Whose turn it is."""

    #: The target's: it has a message to answer.
    ASKED = "asked"
    #: The sender's call's, to look at the answer that is there.
    ANSWERED = "answered"
    #: The sender's, to answer on its side thread.
    ASIDE = "aside"
    #: Nobody's.
    ENDED = "ended"


class ExchangeStatus(StrEnum):
    """What an exchange came to."""

    REPLIED = "replied"
    #: The target had begun and did not answer in time. Its answer arrives later, as a message.
    DELIVERED_NO_REPLY = "delivered_no_reply"
    #: The target had not begun in time, and never sees the message.
    WITHDRAWN = "withdrawn"
    #: The answer has become too high for the sender. A person may approve it.
    WITHHELD = "withheld"
    #: The target dropped the message unread: it was reset, or may no longer take it in.
    REFUSED = "refused"
    #: The turn that was to answer failed or was stopped.
    FAILED = "failed"


class EndedBy(StrEnum):
    """What brought an exchange of several turns to its end."""

    SENDER = "sender"
    TARGET = "target"
    MAX_TURNS = "max_turns"
    TIMEOUT = "timeout"
    #: An answer was withheld, or a message may not be sent on.
    POLICY = "policy"
    #: The target has come to wait for the sender.
    DEADLOCK = "deadlock"
    #: A turn failed, or its message was dropped.
    FAILURE = "failure"


class Sent(Frozen):
    """The result of a message that nobody waits for."""

    sent: bool = True
    message_id: str


class Withheld(Frozen):
    """The constant notice in the place of an answer that may not be read."""

    sent: bool = True
    status: ExchangeStatus = ExchangeStatus.WITHHELD


class Unanswered(Frozen):
    """The result of a wait without an answer, and the message it is about."""

    sent: bool = True
    status: ExchangeStatus
    message_id: str


class ExchangeStats(Frozen):
    """What the turns of an exchange took. `cost` is US dollars, None where no price is known."""

    runtime_ms: int
    tokens: int
    cost: float | None


class Answered(Frozen):
    """The result of a wait with an answer; `failed` when it only tells why there is none."""

    sent: bool = True
    status: ExchangeStatus
    response: str
    stats: ExchangeStats


class Line(Frozen):
    """One message of an exchange."""

    from_session: str
    message_id: str
    text: str


class Settled(Answered):
    """The result of an exchange of several turns. The first answer is not counted as a turn."""

    turns_completed: int
    ended_by: EndedBy
    transcript: tuple[Line, ...]


ExchangeResult = Sent | Withheld | Unanswered | Answered | Settled


def exchange_id(request: ToolRequest) -> str:
    """The exchange that a call opens."""
    return f"exc_{place_digest(request)}"


def sent_id(request: ToolRequest) -> str:
    """The first message of a call."""
    return f"snd_{place_digest(request)}"


def next_id(exchange: str, number: int) -> str:
    """The `number`-th message of an exchange, from 0."""
    place = exchange.removeprefix("exc_")
    return f"snd_{place}_{number}" if number else f"snd_{place}"


def late_id(exchange: str) -> str:
    """The message that brings a late answer."""
    return f"{LATE}{exchange.removeprefix('exc_')}"


def place_digest(request: ToolRequest) -> str:
    """A name for the place of a call, the same at each of its runs and of no other call."""
    place = f"{request.session_key}\n{request.turn}/{request.step}/{request.call}"
    return hashlib.sha256(place.encode()).hexdigest()[:32]


def without_skip(text: str) -> tuple[str, bool]:
    """`text` without the marker that ends an exchange, and whether it stood there."""
    stripped, found = _SKIP.subn("", text)
    return (stripped.strip(), True) if found else (text, False)
