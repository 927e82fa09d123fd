"""The group "policy": asking what would be allowed.

Invariant: asking has no effect, and tells nothing that the caller may not see.
"""

from __future__ import annotations

from pydantic import Field, JsonValue

from perdure.domain.steps import Lane
from perdure.tools.spec import Arguments, Effect, ToolSpec


class SimulateToolCall(Arguments):
    """Arguments of `simulate_tool_call`."""

    tool_name: str = Field(min_length=1, max_length=64, description="Name of one of your tools.")
    args: dict[str, JsonValue] = Field({}, description="The arguments you would call it with.")


SPECS = (
    ToolSpec(
        name="simulate_tool_call",
        description=(
            "Ask what policy would say of a tool call, without making it: ALLOW, BLOCK, REDACT or "
            "REQUIRE_APPROVAL, which rule decides, and what your label would be afterwards."
        ),
        group="policy",
        parameters=SimulateToolCall,
        lane=Lane.LOCAL,
        effect=Effect.READ,
    ),
)
