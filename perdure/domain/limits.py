"""Every number that bounds something, with the reason for its value. Configurable in [limits]."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """The `[limits]` table of perdure.toml. Sizes are bytes, times are seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: The largest message a person or program may send. Large pastes belong in files.
    message_bytes: int = Field(1_000_000, ge=1, le=64_000_000)
    #: Messages waiting in one session. 5,000 envelopes are about 0.5 MB of workflow state,
    #: well under Temporal's 2 MB for a payload.
    inbox: int = Field(5_000, ge=1, le=10_000)
    #: What of a tool result the model reads; the rest lies in the workspace.
    tool_result_bytes: int = Field(50_000, ge=1_000, le=1_000_000)
    #: The largest file the file tools read or write.
    file_bytes: int = Field(10_000_000, ge=1_000)
    #: Model calls of one turn, when the agent names no limit of its own.
    max_steps: int = Field(50, ge=1, le=500)
    #: Attempts of one step before the turn ends with an error.
    step_attempts: int = Field(6, ge=1, le=100)
    #: The longest single model call.
    step_timeout: float = Field(1_800, ge=1, allow_inf_nan=False)
    #: The longest single tool call outside our own data, unless the tool says otherwise.
    tool_timeout: float = Field(300, ge=1, allow_inf_nan=False)
    #: Turns of one workflow run before it continues as new: a replay costs about 18 ms a turn.
    turns_per_run: int = Field(100, ge=1, le=1_000)
