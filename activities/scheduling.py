"""What is done at the times of schedules.

Invariant: a time of a schedule sends one message, or spawns one run, however often it is tried: the
ids follow from the schedule's number and the time.
"""

from __future__ import annotations

from datetime import datetime

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.delegation import Delegation
from activities.post import Post
from perdure.config import Settings
from perdure.domain.envelopes import Envelope, Sender, SenderKind
from perdure.domain.errors import Code, Denied, PerdureError
from perdure.domain.keys import SessionKey
from perdure.domain.labels import can_flow, join
from perdure.domain.schedules import Fired, FireOutcome, Overlap, ScheduledFire, ScheduleKind
from perdure.domain.steps import ToolRequest
from perdure.store import Store
from perdure.store.mailbox import Place
from perdure.store.runs import Address
from perdure.store.schedules import ScheduleRow
from perdure.tools.subagents import SessionsSpawn

#: What may pass by itself; anything else is refused for good, and the time is over.
_PASSING = frozenset({Code.UNAVAILABLE, Code.TIMEOUT, Code.RATE_LIMITED})


class ScheduledWork:
    """`ScheduleActivities`, over the store and the way to other sessions."""

    def __init__(
        self, settings: Settings, store: Store, post: Post, delegation: Delegation
    ) -> None:
        self._settings = settings
        self._store = store
        self._post = post
        self._delegation = delegation

    @activity.defn
    async def fire_schedule(self, fire: ScheduledFire) -> Fired:
        """Send the message of a schedule, or have its sub-agent spawned, once for each time.

        Raises:
            ApplicationError: for good when it is refused, as where the agent is no more.
        """
        schedule = await self._store.schedules.get(fire.number)
        if schedule is None:
            return Fired(outcome=FireOutcome.REMOVED)
        try:
            if schedule.kind is ScheduleKind.SPAWN:
                return await self._spawn(schedule, fire.at)
            return await self._send(schedule, fire.at)
        except PerdureError as error:
            raise ApplicationError(
                str(error), type=error.code, non_retryable=error.code not in _PASSING
            ) from None

    async def _send(self, schedule: ScheduleRow, at: datetime) -> Fired:
        key = schedule.session_key
        prefix = f"sched_{schedule.number}_"
        envelope = Envelope(
            message_id=f"{prefix}{at:%Y%m%dT%H%M%SZ}",
            sender=Sender(kind=SenderKind.SYSTEM, id=f"schedule {schedule.name}"),
            label=schedule.label,
        )
        waits = await self._store.schedules.waits(key, prefix)
        mine = await self._store.mailbox.holds(key, envelope.message_id)
        if waits and not mine and schedule.overlap is Overlap.SKIP:
            return Fired(outcome=FireOutcome.SKIPPED)
        agent = await self._agent(schedule)
        self._check(schedule, agent)
        posted = await self._store.mailbox.post(key, envelope, schedule.text)
        if posted.place is not Place.TAKEN:
            await self._post.deliver(key, agent, envelope)
        return Fired(outcome=FireOutcome.SENT, message_id=envelope.message_id)

    async def _spawn(self, schedule: ScheduleRow, at: datetime) -> Fired:
        key = schedule.session_key
        agent, label = await self._store.schedules.open_session(key, await self._agent(schedule))
        # As a call of a turn that never was: it names the run for ever.
        request = ToolRequest(
            session_key=key,
            agent=agent,
            turn=0,
            step=schedule.number,
            call=int(at.timestamp()),
            label=join(label, schedule.label),
        )
        self._check(schedule, agent)
        asked = {"task": schedule.text, "agent": schedule.agent, "async": True}
        await self._delegation.spawn(request, SessionsSpawn.model_validate(asked))
        spawned = await self._store.spawning.spawned_by(request)
        assert spawned is not None, "it was spawned just now"
        await self._post.wake(Address(session_key=key, agent=agent))
        return Fired(outcome=FireOutcome.SPAWNED, run_id=spawned.run.run_id)

    async def _agent(self, schedule: ScheduleRow) -> str:
        """Who answers in the session of a schedule."""
        row = await self._store.sessions.get(schedule.session_key)
        if row is not None:
            return row.agent
        asked = schedule.agent if schedule.kind is ScheduleKind.MESSAGE else None
        return self._settings.agent_for(SessionKey.parse(schedule.session_key), asked)

    def _check(self, schedule: ScheduleRow, agent: str) -> None:
        clearance = self._settings.agent(agent).clearance
        if not can_flow(schedule.label, clearance):
            raise Denied(
                f"What the schedule {schedule.name} sends is {schedule.label}, above the clearance "
                f"of agent {agent}, {clearance}.",
                "Use an agent with a higher clearance.",
            )
