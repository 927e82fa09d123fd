"""The group "sessions": saying something to another session.

Invariant: who sends, at which label, is known from the call's own session; no argument says it.
"""

from __future__ import annotations

from pydantic import Field

from perdure.domain.exchanges import Mode
from perdure.domain.steps import Lane
from perdure.tools.spec import Arguments, Effect, ToolSpec

GROUP = "sessions"
#: The longest wait, in milliseconds: a day.
LONGEST_WAIT = 86_400_000


class SessionsSend(Arguments):
    """Arguments of `sessions_send`."""

    session_key: str = Field(description="The session to send to.")
    text: str = Field(min_length=1, description="The message.")
    mode: Mode = Field(
        Mode.FIRE_AND_FORGET,
        description=(
            "fire-and-forget: go on at once, nothing comes back by itself. wait: the answer is "
            "this call's result. ping-pong: after the answer you and it go on in turns."
        ),
    )
    timeout_ms: int = Field(
        60_000, ge=1, le=LONGEST_WAIT, description="For all of it, in milliseconds."
    )
    max_turns: int = Field(3, ge=0, le=5, description="Of a ping-pong, after the first answer.")


class EndExchange(Arguments):
    """Arguments of `end_exchange`."""


SPECS = (
    ToolSpec(
        name="sessions_send",
        description=(
            "Send a message to another session. status of a wait is replied; withdrawn, when it "
            "had not begun in time and never sees the message; delivered_no_reply, when its answer "
            "will come later as a message; failed, refused or withheld. A ping-pong ends earlier "
            "when either side calls end_exchange or writes ANNOUNCE_SKIP."
        ),
        group=GROUP,
        parameters=SessionsSend,
        lane=Lane.LOCAL,
        # The message id follows from the call: a second run sends nothing more.
        effect=Effect.IDEMPOTENT,
        timeout=60.0,
        resumable=True,
    ),
    ToolSpec(
        name="end_exchange",
        description=(
            "While another session and you talk in turns: let your next answer be the last one. "
            "It still reads that answer."
        ),
        group=GROUP,
        parameters=EndExchange,
        lane=Lane.LOCAL,
        effect=Effect.IDEMPOTENT,
    ),
)
