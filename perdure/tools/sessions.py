"""The group "sessions": looking at sessions.

Invariant: who asks is known from the call's own session; no argument says it.
"""

from __future__ import annotations

from pydantic import Field

from perdure.domain.steps import Lane
from perdure.tools.spec import Arguments, Effect, ToolSpec


class SessionStatus(Arguments):
    """Arguments of `session_status`."""

    session_key: str | None = Field(
        None, max_length=512, description="Another session; without it, your own."
    )


SPECS = (
    ToolSpec(
        name="session_status",
        description=(
            "Figures of your own session, or of another one that you may see: agent, model, state, "
            "label, clearance, turns, steps, tokens, cost, messages that wait."
        ),
        group="sessions",
        parameters=SessionStatus,
        lane=Lane.LOCAL,
        effect=Effect.READ,
    ),
)
