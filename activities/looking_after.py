"""What stands behind the tool `subagents`: list, wait, steer and kill.

Invariant: a session reaches the runs below it and no others, and for the rest there is one
answer, whether they are hidden or not there.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from activities.post import Post
from activities.standing import Done, Pending
from perdure.config import Settings
from perdure.delegation import artifacts
from perdure.domain.envelopes import Envelope, Sender, SenderKind
from perdure.domain.errors import Denied, InvalidArgument, NotFound
from perdure.domain.ids import new_run_id
from perdure.domain.labels import can_flow, join
from perdure.domain.messages import Frozen
from perdure.domain.runs import EndReason, RunState, RunStatus, status_of
from perdure.domain.steps import ToolRequest, WaitsFor
from perdure.policy.invariants import may_send
from perdure.store import Store
from perdure.store.clock import now
from perdure.store.run_views import RunView
from perdure.store.runs import Run, Spawn, session_key_of
from perdure.store.stopping import Steered
from perdure.tools.subagents import Action, Subagents
from perdure.workspace import Workspace


class Killed(Frozen):
    """The result of `kill`."""

    killed: bool
    run_id: str
    descendants: int
    status: RunStatus


class SteerResult(Frozen):
    """The result of `steer` on a run under way."""

    status: str
    run_id: str | None = None
    old_run_id: str | None = None
    new_run_id: str | None = None


class NotRunning(Frozen):
    """The answer for a run that is not under way: nothing happened."""

    run_id: str
    status: RunStatus
    end_reason: EndReason | None


class FinishedRun(Frozen):
    """A run that has ended, in the result of `wait`."""

    run_id: str
    session_key: str
    status: RunStatus
    end_reason: EndReason | None


class Waited(Frozen):
    """The result of `wait`."""

    finished: tuple[FinishedRun, ...]
    running: tuple[str, ...]


class Listed(Frozen):
    """The result of `list`."""

    runs: tuple[RunView, ...]
    total: int


class LookingAfter:
    """Acts on the runs below a session."""

    def __init__(self, settings: Settings, store: Store, post: Post) -> None:
        self._settings = settings
        self._store = store
        self._post = post

    async def do(self, request: ToolRequest, asked: Subagents) -> Pending | Done:
        """Do what `asked.action` says.

        Raises:
            PerdureError: what the model is to read.
        """
        match asked.action:
            case Action.LIST:
                return await self._list(request, asked)
            case Action.WAIT:
                return await self._wait(request, asked)
            case Action.KILL:
                return Done(await self._kill(request, _target(asked)))
            case Action.STEER:
                return Done(await self._steer(request, _target(asked), asked.message))

    async def _list(self, request: ToolRequest, asked: Subagents) -> Done:
        below = await self._store.run_views.below(
            request.session_key, recent_minutes=asked.recent_minutes, level=request.label
        )
        return Done(
            Listed(runs=below.runs, total=below.total),
            label=join(*(run.label for run in below.runs)),
        )

    async def _wait(self, request: ToolRequest, asked: Subagents) -> Pending | Done:
        waiting = await self._store.run_waits.of_call(request)
        if waiting is None:
            for run_id in asked.targets:
                await self._run(request, run_id)
            until = now() + timedelta(milliseconds=asked.timeout_ms)
            waiting = await self._store.run_waits.open(request, asked.targets, until)
        seconds = (waiting.until - now()).total_seconds()
        running = [run for run in waiting.runs if run.state is not RunState.ENDED]
        if running and seconds > 0:
            return Pending(seconds=seconds, on=WaitsFor.RUNS)
        return Done(
            Waited(
                finished=tuple(
                    FinishedRun(
                        run_id=run.run_id,
                        session_key=run.session_key,
                        status=status_of(run.state, run.end_reason),
                        end_reason=run.end_reason,
                    )
                    for run in waiting.runs
                    if run.state is RunState.ENDED
                ),
                running=tuple(run.run_id for run in running),
            )
        )

    async def _kill(self, request: ToolRequest, run_id: str) -> Killed | NotRunning:
        run = await self._run(request, run_id)
        stopped = await self._store.stopping.stop(run.run_id, EndReason.KILLED)
        await self._post.wake(*stopped.wake)
        if not stopped.wake:
            return _not_running(stopped.run)
        return Killed(
            killed=True,
            run_id=run_id,
            descendants=stopped.descendants,
            status=status_of(stopped.run.state, stopped.run.end_reason),
        )

    async def _steer(
        self, request: ToolRequest, run_id: str, message: str | None
    ) -> SteerResult | NotRunning:
        if message is None:
            raise InvalidArgument("steer needs a message.", "Say what the run should do instead.")
        run = await self._run(request, run_id)
        agent = self._settings.agent(run.agent)
        row = await self._store.sessions.get(run.session_key)
        theirs = row.label if row is not None else request.label
        if not may_send(request.label, theirs, agent.intake):
            raise Denied(
                f"This session is {request.label}, and the run is {theirs}: what it knows must "
                "not flow down (write-down).",
                "Spawn a new run with the message as its task.",
            )
        sender = Sender(kind=SenderKind.SESSION, id=request.session_key)
        steering = Steering(self._settings, self._store, self._post)
        envelope = Envelope(
            message_id=f"steer_{request.turn}_{request.step}_{request.call}",
            sender=sender,
            label=request.label,
            joins=True,
        )
        return await steering.steer(run, message, envelope)

    async def _run(self, request: ToolRequest, run_id: str) -> Run:
        run = await self._store.run_views.find_below(request.session_key, run_id)
        if run is not None:
            row = await self._store.sessions.get(run.session_key)
            if row is not None and can_flow(row.label, request.label):
                return run
        raise NotFound(
            f"None of your runs is called {run_id[:160]!r}.", "List them with subagents list."
        )


class Steering:
    """Steers a run, for its parent or for a person."""

    def __init__(self, settings: Settings, store: Store, post: Post) -> None:
        self._settings = settings
        self._store = store
        self._post = post

    async def steer(self, run: Run, message: str, envelope: Envelope) -> SteerResult | NotRunning:
        """Have a run take in `message`, which `envelope` announces, or do that instead.

        Raises:
            RateLimited: when it was steered a moment ago.
        """
        if self._injects(run):
            steered = await self._store.stopping.inject(run.run_id, envelope, message)
            if not steered.wake:
                return _not_running(steered.run)
            await self._post.deliver(run.session_key, run.agent, envelope)
            return SteerResult(status="steer_injected", run_id=run.run_id)
        steered = await self._replace(run, message)
        if steered.successor is None:
            return _not_running(steered.run)
        await self._post.wake(*steered.wake)
        return SteerResult(
            status="steered", old_run_id=run.run_id, new_run_id=steered.successor.run_id
        )

    def _injects(self, run: Run) -> bool:
        own = self._settings.agent(run.agent).steer_inject
        return self._settings.delegation.steer_inject if own is None else own

    async def _replace(self, run: Run, message: str) -> Steered:
        run_id = new_run_id(run.agent)
        spawn = Spawn(
            run_id=run_id,
            session_key=session_key_of(run.parent_key, run.agent, run_id),
            sync=run.sync,
            packet=run.packet.model_copy(update={"task": message}),
            token_budget=run.token_budget,
            cost_budget=run.cost_budget,
        )
        # The same files as the run that it follows had, from its parent or, where they have
        # changed there, from that run itself.
        await asyncio.to_thread(
            artifacts.copy,
            self._workspace(run.parent_key),
            self._workspace(spawn.session_key),
            run.packet.artifacts,
            otherwise=self._workspace(run.session_key),
        )
        return await self._store.stopping.replace(run.run_id, spawn, self._settings.limits)

    def _workspace(self, session_key: str) -> Workspace:
        return Workspace.for_session(
            self._settings.home, session_key, self._settings.limits.file_bytes
        )


def _target(asked: Subagents) -> str:
    if asked.target is None:
        raise InvalidArgument(
            f"{asked.action} needs a target.", "Name the run: target is its run_id."
        )
    return asked.target


def _not_running(run: Run) -> NotRunning:
    return NotRunning(
        run_id=run.run_id,
        status=status_of(run.state, run.end_reason),
        end_reason=run.end_reason,
    )
