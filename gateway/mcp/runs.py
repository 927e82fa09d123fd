"""The tool for runs: see what sub-agents do, wait for one, steer it, stop it.

Invariant: looking needs the scope to read, acting the scope to steer. A run is ordered by a session
and by nobody else: who wants work done sends a message.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from activities.steering import SteerResult
from gateway.http import parts
from gateway.http.parts import while_wanted
from gateway.mcp.offers import Asked, Offer, offer
from gateway.mcp.sessions import LONGEST_WAIT
from gateway.runs import KilledRun
from perdure.delegation.results import RunResult
from perdure.domain.access import Scope
from perdure.domain.errors import InvalidArgument, TimedOut
from perdure.domain.messages import Frozen
from perdure.store.run_views import RunView
from perdure.tools import Effect
from perdure.tools.spec import Arguments


class Subagents(Arguments):
    """Arguments of `subagents`."""

    action: Literal["list", "wait", "steer", "kill"] = Field(
        "list", description="list, wait, steer or kill."
    )
    session_key: str | None = Field(
        None, max_length=512, description="List the runs below this session; without it, all."
    )
    target: str | None = Field(
        None, max_length=160, description="The run to wait for, to steer or to kill."
    )
    message: str | None = Field(None, min_length=1, description="What to steer the run with.")
    timeout_ms: int = Field(
        60_000, ge=1, le=LONGEST_WAIT, description="How long to wait, in milliseconds."
    )
    recent_minutes: int = Field(
        30, ge=0, le=1_000_000, description="How long ago a run that is listed may have ended."
    )


class Runs(Frozen):
    """The answer of `subagents`: what was asked for of these."""

    runs: tuple[RunView, ...] | None = None
    total: int | None = None
    result: RunResult | None = None
    steered: SteerResult | None = None
    killed: KilledRun | None = None


async def _do(asked: Asked, arguments: Subagents) -> Runs:
    runs, stopping = asked.gateway.client.runs, asked.gateway.stopping
    if arguments.action in ("list", "wait"):
        asked.check(Scope.READ)
    else:
        asked.check(Scope.STEER)
    if arguments.action == "list":
        found = await runs.list(arguments.session_key, recent_minutes=arguments.recent_minutes)
        return Runs(runs=found.runs, total=found.total)
    if arguments.target is None:
        raise InvalidArgument(f"{arguments.action} needs a target.", "Name the run.")
    if arguments.action == "wait":
        seconds = arguments.timeout_ms / 1000
        work = runs.result(arguments.target, timeout=seconds)
        try:
            return Runs(result=await while_wanted(work, stopping))
        except TimedOut as error:
            said = f"The run {arguments.target} has not ended within {seconds:g} s; it goes on."
            raise TimedOut(said, "Wait for it again.") from error
    if arguments.action == "kill":
        killing = runs.kill(arguments.target)
        return Runs(killed=await while_wanted(killing, stopping, within=parts.PATIENCE))
    if arguments.message is None:
        raise InvalidArgument("steer needs a message.", "Say what the run should do.")
    steering = runs.steer(arguments.target, arguments.message, by=asked.gateway.caller.name)
    return Runs(steered=await while_wanted(steering, stopping, within=parts.PATIENCE))


OFFERS: tuple[Offer, ...] = (
    offer(
        "subagents",
        "Look after the runs of sub-agents: list them, wait for one to end, steer one with a "
        "message, kill one with all below it.",
        Subagents,
        _do,
        Runs,
        Scope.READ,
        Scope.STEER,
        effect=Effect.ONCE,
    ),
)
