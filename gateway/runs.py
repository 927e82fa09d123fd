"""Runs for people: seen, steered and stopped from outside their sessions.

Invariant: what is above the caller's level is not shown here and cannot be touched from here; the
answer is the one for a run that is not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

from temporalio.client import Client
from temporalio.service import RPCError
from ulid import ULID

from activities.post import Post
from activities.steering import Steering, SteerResult
from gateway.sight import Sight, no_session
from perdure.config import Settings
from perdure.delegation.results import RunResult
from perdure.domain.envelopes import Envelope, Sender
from perdure.domain.errors import InvalidArgument, NotFound, TimedOut, Unavailable
from perdure.domain.labels import can_flow
from perdure.domain.messages import Frozen
from perdure.domain.runs import EndReason, RunState, RunStatus, status_of
from perdure.domain.states import EventKind
from perdure.store import Store
from perdure.store.marks import Mark
from perdure.store.run_trees import Forest
from perdure.store.run_views import PAGE, RunList, RunView
from perdure.store.runs import Run
from perdure.workspace import Workspace

#: Seconds between two readings of a tree while things happen, and while nothing does.
PAUSE = 0.2
LONGEST = 10.0


class KilledRun(Frozen):
    """What a kill came to: `killed` is False when the run had ended before."""

    run_id: str
    killed: bool
    descendants: int
    status: RunStatus


class RunClient:
    """Looks after the runs of all sessions, as `SessionClient.runs`."""

    def __init__(
        self, settings: Settings, store: Store, temporal: Callable[[], Client], sight: Sight
    ) -> None:
        self._settings = settings
        self._store = store
        self._temporal = temporal
        self._sight = sight

    async def list(
        self,
        session_key: str | None = None,
        *,
        recent_minutes: float | None = None,
        limit: int = PAGE,
        offset: int = 0,
        after: str | None = None,
    ) -> RunList:
        """The runs below a session, or of all sessions, each after the run that spawned it.

        Args:
            session_key: whose; None is everybody's.
            recent_minutes: leaves out those that ended longer ago.
            limit: up to 200.
            offset: runs to leave out at the beginning.
            after: the run after which the page begins.

        Raises:
            InvalidArgument: for a limit or an offset out of range.
        """
        if not 1 <= limit <= PAGE or offset < 0:
            raise InvalidArgument(
                f"limit {limit}, offset {offset} are out of range.",
                f"limit is 1 to {PAGE}, offset 0 or more.",
            )
        if session_key is not None and await self._sight.hides(session_key):
            return RunList(runs=(), total=0)
        return await self._store.run_views.below(
            session_key,
            recent_minutes=recent_minutes,
            level=self._sight.level,
            reader=self._sight.reader,
            limit=limit,
            offset=offset,
            after=after,
        )

    async def get(self, run_id: str) -> RunView:
        """A run, how far it is, and what it last did.

        Raises:
            NotFound: when there is no such run.
        """
        found = await self._store.run_views.view(run_id, self._sight.reader)
        if found is None:
            raise _no_run(run_id)
        return found

    async def tree(
        self,
        session_key: str | None = None,
        *,
        recent_minutes: float | None = None,
        limit: int = 50,
        offset: int = 0,
        mark: Mark | None = None,
    ) -> Forest:
        """A session and all runs below it; for None, all sessions that work or have runs.

        Args:
            session_key: whose.
            recent_minutes: leaves out runs that ended longer ago.
            limit: sessions of one page.
            offset: sessions to leave out at the beginning.
            mark: the session after whose time and key the page begins.

        Raises:
            NotFound: when there is no such session.
        """
        forest = await self._store.run_trees.read(
            session_key,
            recent_minutes=recent_minutes,
            level=self._sight.level,
            reader=self._sight.reader,
            limit=limit,
            offset=offset,
            mark=mark,
        )
        if session_key is not None and not forest.sessions:
            raise no_session(session_key)
        return forest

    async def trees(
        self,
        session_key: str | None = None,
        *,
        recent_minutes: float | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> AsyncGenerator[Forest]:
        """What `tree` tells now, and again whenever anything happens, for ever; and at least every
        `LONGEST` seconds, since runs leave the recent ones without an event.

        Raises:
            NotFound: when there is no such session.
        """
        happened = asyncio.Event()
        cursor = await self._store.outbox.newest_id()

        async def listen() -> None:
            async with aclosing(self._store.outbox.follow(None, cursor, near=True)) as events:
                async for _ in events:
                    happened.set()

        listening = asyncio.create_task(listen())
        try:
            while True:
                happened.clear()
                yield await self.tree(
                    session_key, recent_minutes=recent_minutes, limit=limit, offset=offset
                )
                waiting = asyncio.create_task(happened.wait())
                await asyncio.wait(
                    {waiting, listening}, timeout=LONGEST, return_when=asyncio.FIRST_COMPLETED
                )
                waiting.cancel()
                if listening.done():
                    listening.result()
                await asyncio.sleep(PAUSE)
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

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

    async def steer(
        self, run_id: str, text: str, *, by: str = "user", request_id: str | None = None
    ) -> SteerResult:
        """Have a run take in a message, or end it and begin another with that as its task: as
        `steer_inject` of its agent says. The same `request_id` again is the same steering.

        Raises:
            NotFound: when there is no such run.
            RateLimited: when it was steered a moment ago.
            InvalidArgument: for an empty text.
            Unavailable: when it could not be told; it is steered all the same.
        """
        if not text.strip():
            raise InvalidArgument("The message is empty.", "Say what the run should do.")
        run = await self._visible(run_id)
        message_id = f"steer_{request_id or ULID()}"
        sender = self._sight.bounds.sender(Sender(id=by))
        envelope = Envelope(message_id=message_id, sender=sender, joins=True)
        steering = Steering(self._settings, self._store, self._post)
        with _confirmed("It is steered all the same, and takes it in when it is next woken."):
            return await steering.steer(run, text, envelope, cause=message_id)

    async def result(
        self, run_id: str, *, wait: bool = True, timeout: float | None = None
    ) -> RunResult:
        """The result of a run, once it has ended; of its successor, if it was steered.

        Args:
            run_id: the run.
            wait: False is for a result that is there already.
            timeout: seconds to wait at most.

        Raises:
            NotFound: when there is no such run.
            TimedOut: when it has not ended yet.
        """
        run = await self._visible(run_id)
        if not wait:
            run = await self._store.runs.newest(run_id)
            if run.result is None:
                raise TimedOut(
                    f"The run {run.run_id} is {run.state}; it has no result yet.",
                    f"Wait for it: `perdure result {run_id} --wait`.",
                )
            return self._readable(run, run.result)
        try:
            async with asyncio.timeout(timeout):
                return await self._ended(run)
        except TimeoutError as error:
            raise TimedOut(
                f"The run {run_id} has not ended within {timeout or 0:g} s; it goes on.",
                "Ask again later, or see `perdure tree`.",
            ) from error

    async def full_result(self, run_id: str) -> Path | None:
        """The file with the whole answer of a run, or of its successor, while it is kept on this
        machine.

        Raises:
            NotFound: when there is no such run.
        """
        await self._visible(run_id)
        run = await self._store.runs.newest(run_id)
        if run.result is None or run.result.full_result_path is None:
            return None
        self._readable(run, run.result)
        folder = Workspace.for_session(self._settings.home, run.parent_key).root
        path = folder / run.result.full_result_path
        return path if path.is_file() else None

    async def _ended(self, run: Run) -> RunResult:
        cursor = await self._store.outbox.newest_id()
        run = await self._store.runs.newest(run.run_id)
        if run.state is RunState.ENDED and run.result is not None:
            return self._readable(run, run.result)
        async with aclosing(self._store.outbox.follow(run.parent_key, cursor, near=True)) as events:
            async for event in events:
                if event.kind in (EventKind.RUN_ENDED, EventKind.RUN_STEERED):
                    run = await self._store.runs.newest(run.run_id)
                    if run.state is RunState.ENDED and run.result is not None:
                        return self._readable(run, run.result)
        raise AssertionError("an outbox never ends")

    def _readable(self, run: Run, result: RunResult) -> RunResult:
        """The result of a run, whose level may have risen while it was waited for."""
        if not can_flow(run.label, self._sight.level):
            raise _no_run(run.run_id)
        return result

    async def _visible(self, run_id: str) -> Run:
        run = await self._store.run_views.seen(run_id, self._sight.reader)
        if run is None:
            raise _no_run(run_id)
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


def _no_run(run_id: str) -> NotFound:
    return NotFound(f"There is no run {run_id[:160]!r}.", "`perdure tree` lists what there is.")
