"""Runs put straight into a store, through its own writes: without Temporal, and without work."""

from __future__ import annotations

from perdure.delegation.packet import SpawnPacket
from perdure.delegation.results import Condensation, RunResult
from perdure.domain.envelopes import Envelope, Sender, SenderKind
from perdure.domain.ids import new_run_id
from perdure.domain.labels import Label
from perdure.domain.limits import Limits
from perdure.domain.runs import EndReason, RunState, status_of
from perdure.domain.steps import ToolRequest
from perdure.store import Store
from perdure.store.runs import Run, session_key_of
from perdure.store.spawning import Spawn, Spawned

TOP = "default:top"


def order(
    above: str, depth: int = 1, *, cause: str = "a test", limits: Limits | None = None
) -> Spawn:
    """A run to be made below a session."""
    limits = limits or Limits()
    run_id = new_run_id("main")
    return Spawn(
        run_id=run_id,
        session_key=session_key_of(above, "main", run_id),
        sync=False,
        packet=SpawnPacket(
            task="work", parent_key=above, agent="main", depth=depth, max_depth=3, max_steps=30
        ),
        label=Label.PUBLIC,
        cause=cause,
        token_budget=limits.run_tokens,
        cost_budget=limits.run_cost,
    )


async def spawn(
    store: Store, above: str = TOP, call: int = 0, depth: int = 1, limits: Limits | None = None
) -> Spawned:
    """Make a run for the call of that number."""
    limits = limits or Limits()
    request = ToolRequest(session_key=above, agent="main", turn=1, step=1, call=call)
    return await store.spawning.spawn(request, order(above, depth, limits=limits), limits)


async def end(store: Store, run: Run, reason: EndReason, *, final: bool = True) -> Run:
    """End a run without a word."""
    result = RunResult(
        run_id=run.run_id,
        session_key=run.session_key,
        status=status_of(RunState.ENDED, reason),
        end_reason=reason,
        response="",
        condensation=Condensation(level=1, original_tokens=0, tokens=0),
    )
    return (await store.stopping.end(run.run_id, result, Label.PUBLIC, final=final)).run


def steering(message_id: str = "steer_1") -> Envelope:
    """The announcement of a message that steers a run."""
    sender = Sender(kind=SenderKind.SESSION, id=TOP)
    return Envelope(message_id=message_id, sender=sender, joins=True)
