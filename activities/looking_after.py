"""What stands behind the tool `subagents`: list, wait, steer and kill.

Invariant: a session reaches the runs below it and no others, and for the rest there is one
answer, whether they are hidden or not there.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta

from activities.delegation import cause_of
from activities.post import Post
from activities.standing import Done, Pending
from activities.steering import NotRunning, Steering, SteerResult, not_running
from perdure.config import Settings
from perdure.domain.envelopes import Envelope, Sender, SenderKind
from perdure.domain.errors import Denied, InvalidArgument, NotFound
from perdure.domain.labels import join
from perdure.domain.messages import Frozen
from perdure.domain.runs import EndReason, RunState, RunStatus, status_of
from perdure.domain.steps import ToolRequest, WaitsFor
from perdure.policy.invariants import may_send
from perdure.store import Store
from perdure.store.clock import now
from perdure.store.run_views import RunView
from perdure.store.runs import Run
from perdure.tools.subagents import Action, Subagents
from perdure.workspace import Workspace


class Killed(Frozen):
    """The result of `kill`."""

    killed: bool
    run_id: str
    descendants: int
    status: RunStatus


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
            return not_running(stopped.run)
        return Killed(
            killed=True,
            run_id=run_id,
            descendants=stopped.descendants,
            status=status_of(stopped.run.state, stopped.run.end_reason),
        )

    async def _steer(self, request: ToolRequest, run_id: str, message: str | None) -> SteerResult:
        if message is None:
            raise InvalidArgument("steer needs a message.", "Say what the run should do instead.")
        run = await self._run(request, run_id)
        agent = self._settings.agent(run.agent)
        row = await self._store.sessions.get(run.session_key)
        theirs = join(run.label, row.label if row is not None else request.label)
        if not may_send(request.label, theirs, agent.intake):
            raise Denied(
                f"This session is {request.label}, and the run is {theirs}: what it knows must "
                "not flow down (write-down).",
                "Spawn a new run with the message as its task.",
            )
        sender = Sender(kind=SenderKind.SESSION, id=request.session_key)
        steering = Steering(self._settings, self._store, self._post)
        cause = cause_of(request)
        envelope = Envelope(
            message_id=f"steer_{hashlib.sha256(cause.encode()).hexdigest()[:32]}",
            sender=sender,
            label=request.label,
            joins=True,
        )
        return await steering.steer(run, message, envelope, cause)

    async def _run(self, request: ToolRequest, run_id: str) -> Run:
        run = await self._store.run_views.find_below(request.session_key, run_id, request.label)
        if run is None:
            raise NotFound(
                f"None of your runs is called {run_id[:160]!r}.", "List them with subagents list."
            )
        return run

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
