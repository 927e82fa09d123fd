"""A run steered: given a message at its next step, or another run in its place.

Invariant: the same cause steers once. What is put in a run's place has what that was handed, and
no more: its tools, its depth, its files, what is left of its budget.
"""

from __future__ import annotations

import asyncio
from typing import Literal

from activities.post import Post
from perdure.config import Settings
from perdure.delegation import artifacts
from perdure.domain.envelopes import Envelope
from perdure.domain.ids import new_run_id
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen
from perdure.domain.runs import EndReason, RunState, RunStatus, status_of
from perdure.store import Store
from perdure.store.runs import Run, session_key_of
from perdure.store.spawning import Spawn
from perdure.store.stopping import Steered
from perdure.workspace import Workspace


class Replaced(Frozen):
    """Another run has taken the place of the one that was steered."""

    status: Literal["steered"] = "steered"
    old_run_id: str
    new_run_id: str


class Injected(Frozen):
    """The message joins the turn of the run at its next step."""

    status: Literal["steer_injected"] = "steer_injected"
    run_id: str


class NotRunning(Frozen):
    """The answer for a run that is not under way: nothing happened."""

    run_id: str
    status: RunStatus
    end_reason: EndReason | None


#: What steering comes to.
SteerResult = Replaced | Injected | NotRunning


class Steering:
    """Steers a run, for its parent or for a person."""

    def __init__(self, settings: Settings, store: Store, post: Post) -> None:
        self._settings = settings
        self._store = store
        self._post = post

    async def steer(self, run: Run, message: str, envelope: Envelope, cause: str) -> SteerResult:
        """Have a run take in `message`, which `envelope` announces, or do that instead. The same
        `cause` again is the same steering.

        Raises:
            RateLimited: when it was steered a moment ago.
            Conflict: when files that it was handed are not there any more as they were.
        """
        if self._injects(run):
            steered = await self._store.stopping.inject(run.run_id, envelope, message)
            if not steered.wake:
                return not_running(steered.run)
            await self._post.deliver(run.session_key, run.agent, envelope)
            return Injected(run_id=run.run_id)
        steered = await self._replace(run, message, envelope.label, cause)
        if steered.successor is None:
            return not_running(steered.run)
        await self._post.wake(*steered.wake)
        return Replaced(old_run_id=run.run_id, new_run_id=steered.successor.run_id)

    def _injects(self, run: Run) -> bool:
        own = self._settings.agent(run.agent).steer_inject
        return self._settings.delegation.steer_inject if own is None else own

    async def _replace(self, run: Run, message: str, label: Label, cause: str) -> Steered:
        run_id = new_run_id(run.agent)
        key = session_key_of(run.parent_key, run.agent, run_id)
        if run.state is RunState.RUNNING:
            await asyncio.to_thread(
                artifacts.copy,
                self._workspace(run.parent_key),
                self._workspace(key),
                run.packet.artifacts,
                self._workspace(run.session_key),
            )
        spawn = Spawn(
            run_id=run_id,
            session_key=key,
            sync=run.sync,
            packet=run.packet.model_copy(update={"task": message}),
            label=label,
            cause=cause,
        )
        return await self._store.stopping.replace(run.run_id, spawn, self._settings.limits)

    def _workspace(self, session_key: str) -> Workspace:
        return Workspace.for_session(
            self._settings.home, session_key, self._settings.limits.file_bytes
        )


def not_running(run: Run) -> NotRunning:
    """The answer for a run that is not under way."""
    return NotRunning(
        run_id=run.run_id,
        status=status_of(run.state, run.end_reason),
        end_reason=run.end_reason,
    )
