"""Runs for people: seen, steered and stopped from outside their sessions.

Invariant: what is above `gateway.level` is not shown here and cannot be touched from here; the
answer is the one for a run that is not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager

from temporalio.client import Client
from temporalio.service import RPCError
from ulid import ULID

from activities.post import Post
from activities.steering import Steering, SteerResult
from perdure.config import Settings
from perdure.delegation.results import RunResult
from perdure.domain.envelopes import Envelope, Sender
from perdure.domain.errors import InvalidArgument, NotFound, TimedOut, Unavailable
from perdure.domain.messages import Frozen
from perdure.domain.runs import EndReason, RunState, RunStatus, status_of
from perdure.domain.states import EventKind
from perdure.store import Store
from perdure.store.run_views import PAGE, RunList
from perdure.store.runs import Run


class KilledRun(Frozen):
    """What a kill came to: `killed` is False when the run had ended before."""

    run_id: str
    killed: bool
    descendants: int
    status: RunStatus


class RunClient:
    """Looks after the runs of all sessions, as `SessionClient.runs`."""

    def __init__(self, settings: Settings, store: Store, temporal: Callable[[], Client]) -> None:
        self._settings = settings
        self._store = store
        self._temporal = temporal

    async def list(
        self,
        session_key: str | None = None,
        *,
        recent_minutes: float | None = None,
        limit: int = PAGE,
        offset: int = 0,
    ) -> RunList:
        """The runs below a session, or of all sessions, each after the run that spawned it.

        Args:
            session_key: whose; None is everybody's.
            recent_minutes: leaves out those that ended longer ago.
            limit: up to 200.
            offset: runs to leave out at the beginning.

        Raises:
            InvalidArgument: for a limit or an offset out of range.
        """
        if not 1 <= limit <= PAGE or offset < 0:
            raise InvalidArgument(
                f"limit {limit}, offset {offset} are out of range.",
                f"limit is 1 to {PAGE}, offset 0 or more.",
            )
        return await self._store.run_views.below(
            session_key,
            recent_minutes=recent_minutes,
            level=self._settings.gateway.level,
            limit=limit,
            offset=offset,
        )

    async def kill(self, run_id: str) -> KilledRun:
        """Stop a run and all below it, keeping what they have committed.

        Raises:
            NotFound: when there is no such run.
            Unavailable: when it could not be told; it is stopping all the same.
        """
        await self._visible(run_id)
        stopped = await self._store.stopping.stop(run_id, EndReason.KILLED)
        with _confirmed("It is stopping all the same."):
            await self._post.wake(*stopped.wake)
        return KilledRun(
            run_id=run_id,
            killed=bool(stopped.wake),
            descendants=stopped.descendants,
            status=status_of(stopped.run.state, stopped.run.end_reason),
        )

    async def steer(self, run_id: str, text: str, *, by: str = "user") -> SteerResult:
        """Have a run take in a message, or end it and begin another with that as its task: as
        `steer_inject` of its agent says.

        Raises:
            NotFound: when there is no such run.
            RateLimited: when it was steered a moment ago.
            InvalidArgument: for an empty text.
            Unavailable: when it could not be told; it is steered all the same.
        """
        if not text.strip():
            raise InvalidArgument("The message is empty.", "Say what the run should do.")
        run = await self._visible(run_id)
        message_id = f"steer_{ULID()}"
        envelope = Envelope(message_id=message_id, sender=Sender(id=by), joins=True)
        steering = Steering(self._settings, self._store, self._post)
        with _confirmed("It is steered all the same, and takes it in when it is next woken."):
            return await steering.steer(run, text, envelope, cause=message_id)

    async def result(self, run_id: str, *, timeout: float | None = None) -> RunResult:
        """The result of a run, once it has ended; of its successor, if it was steered.

        Raises:
            NotFound: when there is no such run.
            TimedOut: when it has not ended within `timeout` seconds.
        """
        run = await self._visible(run_id)
        try:
            async with asyncio.timeout(timeout):
                return await self._ended(run)
        except TimeoutError as error:
            raise TimedOut(
                f"The run {run_id} has not ended within {timeout or 0:g} s; it goes on.",
                "Ask again later, or see `perdure tree`.",
            ) from error

    async def _ended(self, run: Run) -> RunResult:
        cursor = await self._store.outbox.newest_id()
        run = await self._store.runs.newest(run.run_id)
        if run.state is RunState.ENDED and run.result is not None:
            return run.result
        async with aclosing(self._store.outbox.follow(run.parent_key, cursor, near=True)) as events:
            async for event in events:
                if event.kind in (EventKind.RUN_ENDED, EventKind.RUN_STEERED):
                    run = await self._store.runs.newest(run.run_id)
                    if run.state is RunState.ENDED and run.result is not None:
                        return run.result
        raise AssertionError("an outbox never ends")

    async def _visible(self, run_id: str) -> Run:
        run = await self._store.run_views.find(run_id, self._settings.gateway.level)
        if run is None:
            raise NotFound(f"There is no run {run_id!r}.", "`perdure tree` lists what there is.")
        return run

    @property
    def _post(self) -> Post:
        return Post(self._temporal(), self._settings.temporal.queue)


@contextmanager
def _confirmed(so_far: str) -> Iterator[None]:
    """Tell what has happened when the cluster does not answer."""
    try:
        yield
    except RPCError as error:
        raise Unavailable(f"Temporal did not confirm the call: {error}. {so_far}") from error
