"""The composition root: clients, stores and workers, built from settings.

Invariant: this is the one place where the rooms meet. Run it as `python -m worker --home DIR`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import signal
import sys
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from activities.asking import Asker
from activities.bindings import Bindings
from activities.compaction import Compaction
from activities.conclusion import Runs
from activities.delegation import Delegation
from activities.exchanges import Messaging
from activities.memory import MemoryWork
from activities.memory_stubs import MemoryActivities
from activities.post import Post
from activities.reply_stubs import ReplyActivities
from activities.replying import Replying
from activities.results import Results
from activities.roster import Roster
from activities.schedule_stubs import ScheduleActivities
from activities.scheduling import ScheduledWork
from activities.sessions import SessionWrites
from activities.steps import ModelSteps
from activities.stubs import (
    CompactionActivities,
    ExchangeActivities,
    RunActivities,
    SessionActivities,
    StepActivities,
    ToolActivities,
    UpkeepActivities,
)
from activities.toolboxes import Toolboxes
from activities.tools import ToolCalls
from activities.upkeep import UpkeepWork
from activities.watching import Watching
from gateway.connection import connect, ensure_search_attributes, leave
from gateway.metrics import sdk_runtime, serving
from gateway.schedules import ensure_memory_upkeep, ensure_upkeep
from perdure.channels.courier import Courier
from perdure.config import Settings, load_settings
from perdure.domain.errors import PerdureError
from perdure.guard import Guard
from perdure.memory import Memory
from perdure.models import ModelFailure, close_models, resolve
from perdure.sources import Sources
from perdure.store import Store
from perdure.telemetry import logs, tracing
from workflows.memory import MemoryReindex, MemoryUpkeep
from workflows.scheduled import Scheduled
from workflows.session import Session
from workflows.subagent import SubAgent
from workflows.upkeep import Upkeep

#: A stopping worker lets activities finish this long before it hands them over.
GRACE = timedelta(seconds=10)
#: An idle session whose worker died is offered to another after this long.
STICKY_TIMEOUT = timedelta(seconds=1)
#: Heartbeats go out every second; the SDK would thin them out to one in four.
HEARTBEAT_THROTTLE = timedelta(seconds=1)


def build(settings: Settings, temporal: Client, store: Store, sources: Sources) -> Worker:
    """A worker for every workflow and activity of Perdure. The rest stays the caller's to close."""
    toolboxes = Toolboxes(settings)
    roster = Roster(settings, store, toolboxes, sources)
    sessions: SessionActivities = SessionWrites(settings, store)
    guard = Guard(settings)
    courier = Courier(store, settings.channels, settings.home)
    post = Post(temporal, settings.temporal.queue)
    compaction = Compaction(settings, store, roster, guard)
    compactions: CompactionActivities = compaction
    memory = Memory.at(settings.memory, settings.home)
    messaging = Messaging(settings, store, post)
    exchanges: ExchangeActivities = messaging
    bindings = Bindings(settings, store, roster, guard, courier, post, messaging, sources)
    steps: StepActivities = ModelSteps(settings, store, roster, guard, compaction, memory)
    tools: ToolActivities = ToolCalls(settings, store, roster, guard, bindings)
    results = Results(settings, store, roster, Asker(store, guard))
    replying = Replying(store, guard, courier)
    upkeep: UpkeepActivities = UpkeepWork(settings, store, temporal, post, results, replying)
    runs: RunActivities = Runs(settings, store, guard, courier, post, results)
    memories: MemoryActivities = MemoryWork(settings, store, guard, memory)
    delegation = Delegation(settings, store, roster, guard)
    scheduled: ScheduleActivities = ScheduledWork(settings, store, post, delegation)
    replies: ReplyActivities = replying
    return Worker(
        temporal,
        task_queue=settings.temporal.queue,
        workflows=[Session, SubAgent, Scheduled, Upkeep, MemoryUpkeep, MemoryReindex],
        activities=[
            sessions.open_session,
            sessions.end_turn,
            sessions.reset_session,
            sessions.close_session,
            steps.take_step,
            tools.run_tool,
            tools.abandon_tool,
            compactions.compact,
            exchanges.reply,
            exchanges.refuse,
            runs.supervise,
            runs.conclude_run,
            upkeep.reconcile_runs,
            upkeep.sweep_results,
            scheduled.fire_schedule,
            replies.deliver_reply,
            memories.remember,
            memories.reindex_memory,
            memories.tend_memory,
        ],
        workflow_runner=workflow_runner(),
        interceptors=[Watching(store)],
        graceful_shutdown_timeout=GRACE,
        sticky_queue_schedule_to_start_timeout=STICKY_TIMEOUT,
        max_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
        default_heartbeat_throttle_interval=HEARTBEAT_THROTTLE,
    )


def workflow_runner() -> WorkflowRunner:
    """The sandbox that workflows run in; a replay must use the same."""
    return SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules(
            "perdure", "workflows", "activities", "pydantic", "pydantic_core", "ulid"
        )
    )


async def run(settings: Settings) -> None:
    """Work until SIGTERM or SIGINT, then hand over what is under way and return."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    # A user's tools may stand beside perdure.toml. Behind everything else: they shadow nothing.
    sys.path.append(str(settings.home))
    temporal = await connect(settings, sdk_runtime(settings.observability))
    await ensure_search_attributes(temporal)
    await ensure_upkeep(temporal, settings)
    await ensure_memory_upkeep(temporal, settings)
    store = await Store.open(
        settings.store_url, settings.audit_files, readers=settings.store.pool_size
    )
    sources = Sources(settings.mcp, settings.home)
    try:
        worker = build(settings, temporal, store, sources)
        async with worker, serving(settings.observability, store):
            warming = asyncio.create_task(_warm(settings), name="warm-models")
            warming.add_done_callback(lambda _: _settle_heap())
            await stopping.wait()
            warming.cancel()
    finally:
        await sources.close()
        await close_models()
        await store.close()
        await asyncio.to_thread(tracing.stop)


def _settle_heap() -> None:
    """Take what was loaded out of the garbage collector's sight: it lives as long as the process,
    and a full collection over it would stop every session of this worker for tens of ms."""
    gc.collect()
    gc.freeze()


async def _warm(settings: Settings) -> None:
    """Load every configured model before it is asked, so that the first answer does not wait for
    seconds of imports. What cannot be loaded is told by the turn that needs it."""
    names = {name for agent in settings.agents.values() for name in agent.models}
    names |= set(settings.context.models(()))
    for name in sorted(names):
        with contextlib.suppress(ModelFailure):
            await resolve(name)


def main() -> None:
    """The command line of a worker process."""
    parser = argparse.ArgumentParser(prog="worker", description=__doc__)
    parser.add_argument("--home", type=Path)
    arguments = parser.parse_args()
    try:
        settings = load_settings(arguments.home)
        logs.configure(settings.observability.logs)
        # A line has a place of its own for where it belongs.
        activity.logger.activity_info_on_message = False
        workflow.logger.workflow_info_on_message = False
        tracing.configure(settings.observability, "perdure-worker", settings.temporal.namespace)
        asyncio.run(run(settings))
    except PerdureError as error:
        print(f"error: {error}", file=sys.stderr)
        leave(1)
    leave(0)


if __name__ == "__main__":
    main()
