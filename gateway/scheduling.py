"""`SessionClient.schedules`: messages and spawns at set times, over Temporal Schedules.

Invariant: Temporal knows when, by number, and the store what; a schedule whose Temporal side could
not be made leaves nothing behind, and one that was removed sends nothing more.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import cache
from typing import TypeVar
from zoneinfo import available_timezones

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleHandle,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleState,
)
from temporalio.service import RPCError, RPCStatusCode

from gateway.admission import bytes_of
from gateway.bounds import DEFAULT_TENANT
from gateway.schedule_views import ScheduleList, ScheduleView, view_of
from gateway.sight import Sight
from perdure.config import Settings
from perdure.domain.errors import InvalidArgument, LimitExceeded, NotFound, Unavailable
from perdure.domain.keys import SessionKey
from perdure.domain.labels import Label
from perdure.domain.schedules import Overlap, ScheduleKind, ScheduleRef
from perdure.store import Store
from perdure.store.schedules import NewSchedule, ScheduleRow

Result = TypeVar("Result")

#: Schedules of one page.
PAGE = 100
#: Seconds between two times at least: a turn takes as long.
SHORTEST = 1.0
#: Times missed while Temporal was away are made up for when they are no older than this.
CATCH_UP = timedelta(minutes=10)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class ScheduleClient:
    """The schedules that are there for one caller."""

    def __init__(
        self, settings: Settings, store: Store, temporal: Callable[[], Client], sight: Sight
    ) -> None:
        self._settings = settings
        self._store = store
        self._temporal = temporal
        self._sight = sight

    async def add(
        self,
        name: str,
        session_key: str,
        text: str,
        *,
        cron: str | None = None,
        every: float | None = None,
        timezone: str = "UTC",
        kind: ScheduleKind = ScheduleKind.MESSAGE,
        agent: str | None = None,
        label: Label = Label.PUBLIC,
        overlap: Overlap = Overlap.SKIP,
        catch_up: float = CATCH_UP.total_seconds(),
        paused: bool = False,
        by: str = "user",
    ) -> ScheduleView:
        """Have `text` sent to a session, or given to a sub-agent of it, again and again.

        Args:
            name: 1 to 64 letters, digits, `.`, `-` and `_`; one of its kind in the tenant.
            session_key: the session, which may be new.
            text: the message, or the task.
            cron: five fields, as in `0 9 * * MON-FRI`, or `@daily` and the like.
            every: seconds between two times; either this or `cron`.
            timezone: where a cron expression is read, as in `Europe/Berlin`.
            kind: a message, or a spawn.
            agent: who answers in a new session, or who is spawned.
            label: the level of the text.
            overlap: what happens while an earlier message still waits.
            catch_up: how old a missed time may be that is made up for, in seconds.
            paused: begin paused.
            by: who adds it, where nobody is known by a key.

        Raises:
            InvalidArgument: for a name, time or time zone that is none.
            Conflict: when the tenant has a schedule of that name.
            NotFound, Denied, LimitExceeded: as `SessionClient.send` does.
            Unavailable: when Temporal does not take it.
        """
        key = SessionKey.parse(session_key)
        self._check(name, text, cron, every, timezone, catch_up)
        await self._sight.check_message(session_key, label)
        if agent is not None:
            self._settings.agent(agent)
        if kind is ScheduleKind.MESSAGE:
            self._settings.agent_for(key, agent)
        row = await self._store.schedules.add(
            NewSchedule(
                tenant=key.tenant,
                name=name,
                kind=kind,
                session_key=session_key,
                agent=agent,
                text=text,
                label=label,
                cron=cron,
                every=every,
                timezone=timezone,
                overlap=overlap,
                created_by=self._sight.bounds.signed(by),
            )
        )
        try:
            await self._create(row, timedelta(seconds=catch_up), paused)
        except BaseException:
            # Also when whoever asked is gone: a row without a schedule would hold the name.
            await asyncio.shield(self._store.schedules.remove(row.number))
            raise
        view = await self._view(row)
        if view.state == "active" and not view.next_at:
            await self._remove(row)
            raise InvalidArgument(
                f"{(cron or '')[:80]!r} is a time that never comes.",
                "Is there such a day, and is the year over?",
            )
        return view

    async def list(
        self,
        *,
        tenant: str | None = None,
        limit: int = 50,
        offset: int = 0,
        after: tuple[str, str] | None = None,
    ) -> ScheduleList:
        """A page of schedules, of a tenant or of all that are there for the caller; from the one
        behind the tenant and name of `after` on.

        Raises:
            InvalidArgument: for a limit or an offset out of range.
            Denied: for another tenant.
        """
        if not 1 <= limit <= PAGE or offset < 0:
            raise InvalidArgument(
                f"limit {limit}, offset {offset} are out of range.",
                f"limit is 1 to {PAGE}, offset 0 or more.",
            )
        if tenant is not None:
            self._sight.bounds.check_tenant(tenant)
        reader = self._sight.reader
        rows, total = await self._store.schedules.page(reader, tenant, limit, offset, after)
        views = await asyncio.gather(*map(self._view, rows))
        return ScheduleList(schedules=tuple(views), total=total)

    async def get(self, name: str, *, tenant: str | None = None) -> ScheduleView:
        """One schedule.

        Raises:
            NotFound: when there is none of that name for the caller.
        """
        return await self._view(await self._row(name, tenant))

    async def pause(self, name: str, *, tenant: str | None = None, note: str = "") -> ScheduleView:
        """Let its times pass until it is resumed; they are not made up for.

        Raises:
            NotFound: when there is none of that name for the caller.
        """
        row = await self._row(name, tenant)
        await _told(self._handle(row).pause(note=note or "paused"))
        return await self._view(row)

    async def resume(self, name: str, *, tenant: str | None = None, note: str = "") -> ScheduleView:
        """Go on from its next time.

        Raises:
            NotFound: when there is none of that name for the caller.
        """
        row = await self._row(name, tenant)
        await _told(self._handle(row).unpause(note=note or "resumed"))
        return await self._view(row)

    async def trigger(self, name: str, *, tenant: str | None = None) -> ScheduleView:
        """Do it now, once, whether it is paused or not.

        Raises:
            NotFound: when there is none of that name for the caller.
        """
        row = await self._row(name, tenant)
        await _told(self._handle(row).trigger(overlap=ScheduleOverlapPolicy.ALLOW_ALL))
        return await self._view(row)

    async def remove(self, name: str, *, tenant: str | None = None) -> None:
        """Remove it; what it has sent stays sent.

        Raises:
            NotFound: when there is none of that name for the caller.
        """
        await self._remove(await self._row(name, tenant))

    async def _remove(self, row: ScheduleRow) -> None:
        with contextlib.suppress(NotFound):  # gone already
            await _told(self._handle(row).delete())
        await self._store.schedules.remove(row.number)

    def _check(
        self,
        name: str,
        text: str,
        cron: str | None,
        every: float | None,
        timezone: str,
        catch_up: float,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise InvalidArgument(
                f"The schedule cannot be named {name[:64]!r}.",
                "A name is 1 to 64 letters, digits, dots, - and _.",
            )
        if (cron is None) == (every is None):
            hint = 'As in cron "0 9 * * MON-FRI", or every 3600.'
            raise InvalidArgument("A schedule has either a cron expression or an interval.", hint)
        if every is not None and not SHORTEST <= every <= 366 * 86_400:
            raise InvalidArgument(
                f"The interval of {every:g} s is out of range.", "It is 1 second to a year."
            )
        if timezone not in _timezones():
            raise InvalidArgument(
                f"There is no time zone {timezone[:64]!r}.", "Names are as in Europe/Berlin, UTC."
            )
        if not 0 <= catch_up <= 366 * 86_400:
            raise InvalidArgument(
                f"The catch-up window of {catch_up:g} s is out of range.", "It is 0 to a year."
            )
        if not text.strip():
            raise InvalidArgument("The schedule has nothing to say.", "Give it a text.")
        size, limit = bytes_of("The text", text), self._settings.limits.message_bytes
        if size > limit:
            raise LimitExceeded(
                f"The text has {size} bytes; limits.message_bytes is {limit}.",
                "Put the content into a file of the workspace and name it in the text.",
            )

    async def _create(self, row: ScheduleRow, catch_up: timedelta, paused: bool) -> None:
        every = [] if row.every is None else [ScheduleIntervalSpec(timedelta(seconds=row.every))]
        doing = "message" if row.kind is ScheduleKind.MESSAGE else "spawn"
        schedule = Schedule(
            action=ScheduleActionStartWorkflow(
                "Scheduled",
                ScheduleRef(number=row.number),
                id=self._id(row),
                task_queue=self._settings.temporal.queue,
                static_summary=f"{row.name} · {doing} · {row.session_key}",
            ),
            spec=ScheduleSpec(
                cron_expressions=[] if row.cron is None else [row.cron],
                intervals=every,
                time_zone_name=row.timezone,
            ),
            policy=SchedulePolicy(
                # Each takes milliseconds; what waits in the session is another matter.
                overlap=ScheduleOverlapPolicy.BUFFER_ALL,
                catchup_window=max(catch_up, timedelta(seconds=SHORTEST)),
            ),
            state=ScheduleState(paused=paused, note="added"),
        )
        try:
            await self._temporal().create_schedule(self._id(row), schedule)
        except ScheduleAlreadyRunningError as error:
            raise Unavailable(
                f"Temporal has a schedule {self._id(row)} that the store does not know.",
                "Was the store replaced? Delete it with `temporal schedule delete`.",
            ) from error
        except RPCError as error:
            if error.status is not RPCStatusCode.INVALID_ARGUMENT:
                raise _away(error) from error
            raise InvalidArgument(
                f"{(row.cron or '')[:80]!r} is not a time: {error.message}.",
                'A cron expression has five fields, as in "0 9 * * MON-FRI".',
            ) from error

    async def _row(self, name: str, tenant: str | None) -> ScheduleRow:
        asked = tenant or self._sight.reader.tenant or DEFAULT_TENANT
        row = None
        if self._sight.reader.tenant in (None, asked):
            row = await self._store.schedules.named(asked, name)
        if row is None or await self._sight.hides(row.session_key):
            raise NotFound(
                f"There is no schedule {name[:64]!r}.", "`perdure schedule list` lists them."
            )
        return row

    async def _view(self, row: ScheduleRow) -> ScheduleView:
        try:
            found = await _told(self._handle(row).describe())
        except NotFound:
            found = None
        return view_of(row, found, self._sight.level)

    def _handle(self, row: ScheduleRow) -> ScheduleHandle:
        return self._temporal().get_schedule_handle(self._id(row))

    def _id(self, row: ScheduleRow) -> str:
        return f"perdure-schedule/{self._settings.temporal.queue}/{row.number}"


@cache
def _timezones() -> frozenset[str]:
    """The names of time zones, which are read from the disk once."""
    return frozenset(available_timezones())


async def _told(call: Awaitable[Result]) -> Result:
    try:
        return await call
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise NotFound(
                "Temporal does not know this schedule.", "Remove it, and add it again."
            ) from error
        raise _away(error) from error


def _away(error: RPCError) -> Unavailable:
    return Unavailable(
        f"Temporal does not take it: {error.status.name.lower()}.", "Try again in a moment."
    )
