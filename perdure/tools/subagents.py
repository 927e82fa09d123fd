"""The group "subagents": delegating work, and looking after it.

Invariant: whose runs they are is known from the call's own session; no argument says it.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from perdure.domain.steps import Lane
from perdure.tools.spec import Arguments, Effect, ToolSpec

GROUP = "subagents"
#: The name of the tool that orders a run.
SPAWN = "sessions_spawn"
#: Model calls of a run, when its spawn asks for no number.
STEPS = 50
#: The fewest that a run gets, whatever its spawn asks for.
FEWEST_STEPS = 30


class ParentHistory(StrEnum):
    """What a child learns of its parent's conversation."""

    NONE = "none"
    SUMMARY = "summary"


class SessionsSpawn(Arguments):
    """Arguments of `sessions_spawn`."""

    task: str = Field(min_length=1, description="What is to be done: the child's first message.")
    agent: str | None = Field(
        None, max_length=64, description="Who does it; without it, an agent like you."
    )
    run_async: bool = Field(
        False,
        alias="async",
        description="true: go on at once; the result comes as a message. false: wait for it.",
    )
    model: str | None = Field(None, max_length=256, description="In place of the agent's own.")
    artifact_refs: tuple[str, ...] = Field(
        (), description="Files of your workspace that the child gets copies of."
    )
    tool_groups: tuple[str, ...] = Field(
        (), description="Groups or tools it may use, of those it and you have; without it, all."
    )
    objective: str | None = Field(
        None, max_length=4_000, description="What the work is for; it is kept in view throughout."
    )
    include_parent_history: ParentHistory = Field(
        ParentHistory.NONE, description="summary: the child reads a summary of this conversation."
    )
    domain_knowledge: tuple[str, ...] = Field((), description="Facts the child should know.")
    expected_outputs: tuple[str, ...] = Field(
        (), description="Files that must be in the child's workspace when it is done."
    )
    max_steps: int = Field(STEPS, ge=1, description="Model calls; at least 30.")
    announce_channel_type: str | None = Field(
        None, max_length=64, description="A configured channel that is told the result too."
    )
    announce_channel_id: str | None = Field(
        None, max_length=320, description="The recipient on that channel."
    )


class Action(StrEnum):
    """What `subagents` does."""

    LIST = "list"
    WAIT = "wait"
    STEER = "steer"
    KILL = "kill"


class Subagents(Arguments):
    """Arguments of `subagents`."""

    action: Action = Field(Action.LIST, description="list, wait, steer or kill.")
    target: str | None = Field(None, max_length=160, description="The run to steer or to kill.")
    targets: tuple[str, ...] = Field(
        (), max_length=100, description="The runs to wait for; without them, all under way."
    )
    message: str | None = Field(None, min_length=1, description="What to steer the run with.")
    timeout_ms: int = Field(
        600_000, ge=0, le=30 * 86_400_000, description="How long to wait, in milliseconds."
    )
    recent_minutes: int = Field(
        30, ge=0, le=1_000_000, description="How long ago a run that is listed may have ended."
    )


SPECS = (
    ToolSpec(
        name=SPAWN,
        description=(
            "Have a sub-agent work on a task in a session of its own. It never has more tools than "
            "you. Its result comes back as this call's result, or with async as a message."
        ),
        group=GROUP,
        parameters=SessionsSpawn,
        lane=Lane.LOCAL,
        effect=Effect.IDEMPOTENT,
        # A summary may take several model calls, four minutes in all.
        timeout=300.0,
        resumable=True,
        slow_with=frozenset({"include_parent_history", "artifact_refs"}),
    ),
    ToolSpec(
        name="subagents",
        description=(
            "Look after the runs that you have spawned, and those they have: list them, wait for "
            "some to end, steer one with a message, kill one with all below it."
        ),
        group=GROUP,
        parameters=Subagents,
        lane=Lane.LOCAL,
        effect=Effect.IDEMPOTENT,
        timeout=60.0,
        resumable=True,
    ),
)
