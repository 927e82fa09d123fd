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
    #: Of these, messages of one other session: one that floods leaves room for the others.
    inbox_per_sender: int = Field(1_000, ge=1, le=10_000)
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
    #: How deep sub-agents may spawn sub-agents: 1 is the child of a session nobody spawned.
    spawn_depth: int = Field(3, ge=0, le=10)
    #: Runs of one session that are under way at a time.
    children: int = Field(5, ge=1, le=100)
    #: Runs of one session that wait for a place; 0 refuses instead.
    spawn_queue: int = Field(10, ge=0, le=1_000)
    #: How long a run may wait for its place.
    queue_seconds: float = Field(120, gt=0, allow_inf_nan=False)
    #: The wall clock of a run: then its watchdog ends it.
    run_seconds: float = Field(600, gt=0, allow_inf_nan=False)
    #: The most model calls that a spawn may ask for; it asks for at least 30.
    run_steps: int = Field(200, ge=30, le=10_000)
    #: What a parent reads of a run's result, in tokens; the whole of it lies in a file.
    run_result_tokens: int = Field(4_000, ge=200, le=100_000)
    #: How long the file with the whole result of a run is kept.
    run_result_seconds: float = Field(86_400, gt=0, allow_inf_nan=False)
    #: Tokens that a run and all below it may use; None is as many as it takes.
    run_tokens: int | None = Field(None, ge=1_000)
    #: US dollars that a run and all below it may use, where prices are known.
    run_cost: float | None = Field(None, gt=0, allow_inf_nan=False)
    #: Turns of one workflow run before it continues as new: a replay costs about 18 ms a turn.
    turns_per_run: int = Field(100, ge=1, le=1_000)
