"""What stands behind the tool `sessions_spawn`: a run ordered, awaited, handed over.

Invariant: everything is checked before anything is made. A child gets no tool, no depth and no
level that its parent has not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from fnmatch import fnmatchcase

from activities.roster import Member, Roster
from activities.standing import Done, Pending
from activities.summarizer import Summarizer
from perdure.config import Settings
from perdure.delegation import artifacts
from perdure.delegation.handing import withheld
from perdure.delegation.outputs import expected
from perdure.delegation.packet import Announcement, SpawnPacket, summary_within
from perdure.domain.errors import Denied, InvalidArgument
from perdure.domain.ids import new_run_id
from perdure.domain.labels import Label, can_flow
from perdure.domain.runs import RunState
from perdure.domain.steps import ToolRequest, WaitsFor
from perdure.guard import Guard
from perdure.sending import terms_of
from perdure.store import Store
from perdure.store.runs import Run, session_key_of
from perdure.store.spawning import Spawn, Spawned
from perdure.tools.catalogue import groups
from perdure.tools.sources import has
from perdure.tools.subagents import FEWEST_STEPS, ParentHistory, SessionsSpawn
from perdure.workspace import Workspace

#: A run that waits is looked at again after this long at the latest, in seconds; it is woken
#: when there is something to see.
LOOK_AGAIN = 600.0


class Delegation:
    """Orders runs."""

    def __init__(self, settings: Settings, store: Store, roster: Roster, guard: Guard) -> None:
        self._settings = settings
        self._store = store
        self._roster = roster
        self._guard = guard
        self._summarizer = Summarizer(settings, store, roster, guard)

    async def spawn(self, request: ToolRequest, asked: SessionsSpawn) -> Pending | Done:
        """Order a run, and wait for it unless it is asked not to.

        Raises:
            PerdureError: what the model is to read; nothing was spawned.
        """
        spawned = await self._store.spawning.spawned_by(request)
        if spawned is None:
            spawned = await self._order(request, asked)
        run = spawned.run
        start = run.start if run.state is RunState.RUNNING else None
        queued = run.state is RunState.QUEUED
        if asked.run_async:
            return Done(_ordered(spawned), start=start, queued=queued)
        if run.state is RunState.ENDED:
            return await self._handed(request, run)
        return Pending(seconds=LOOK_AGAIN, on=WaitsFor.RUNS, start=start, queued=queued)

    async def _handed(self, request: ToolRequest, run: Run) -> Done:
        assert run.result is not None, "it has ended"
        if can_flow(run.label, request.label):
            return Done(run.result, label=run.label)
        await self._store.withheld_results.withhold(run, terms_of(self._settings))
        return Done(withheld(run.result))

    async def _order(self, request: ToolRequest, asked: SessionsSpawn) -> Spawned:
        parent = await self._roster.of(request.session_key, request.agent, request.turn)
        agent = asked.agent or request.agent
        self._check_agent(parent, request, agent)
        tools = await self._tools(parent, agent, asked.tool_groups)
        limits = self._settings.limits
        depth = 1 if parent.packet is None else parent.packet.depth + 1
        await self._store.spawning.check_room(request, depth, limits)
        run_id = new_run_id(agent)
        key = session_key_of(request.session_key, agent, run_id)
        # What a schedule orders is no call, and hands over no files.
        handed = asked.artifact_refs
        labels = (await self._store.claims.look(request)).labels if handed else {}
        mine = self._workspace(request.session_key)
        files = await asyncio.to_thread(
            artifacts.manifest,
            mine,
            asked.artifact_refs,
            lambda path: self._guard.calls.file_label(path, labels),
        )
        packet = SpawnPacket(
            task=asked.task,
            objective=asked.objective,
            artifacts=files,
            domain_knowledge=asked.domain_knowledge,
            tools=tools,
            parent_summary=await self._summary(request, asked),
            parent_key=request.session_key,
            agent=agent,
            model=asked.model,
            depth=depth,
            max_depth=limits.spawn_depth,
            expected_outputs=expected(asked.expected_outputs),
            max_steps=min(max(asked.max_steps, FEWEST_STEPS), limits.run_steps),
            announce=self._announcement(asked),
        )
        spawn = Spawn(
            run_id=run_id,
            session_key=key,
            sync=not asked.run_async,
            packet=packet,
            label=request.label,
            cause=cause_of(request),
            token_budget=limits.run_tokens,
            cost_budget=limits.run_cost,
        )
        # Before the run can be started by anyone.
        await asyncio.to_thread(artifacts.copy, mine, self._workspace(key), files)
        return await self._store.spawning.spawn(request, spawn, limits)

    async def _summary(self, request: ToolRequest, asked: SessionsSpawn) -> str | None:
        """What the child is told of this conversation, if it is told of it. Its level is at most
        the session's, which is the task's."""
        if asked.include_parent_history is ParentHistory.NONE:
            return None
        told, _ = await self._summarizer.summary_of(
            request.session_key, request.agent, request.label, turn=request.turn
        )
        return summary_within(told)

    def _check_agent(self, parent: Member, request: ToolRequest, agent: str) -> None:
        if not may_spawn(self._settings, request.agent, agent):
            allowed = [
                name
                for name in self._settings.agents
                if may_spawn(self._settings, request.agent, name)
            ]
            raise Denied(
                f"The agent {request.agent} may not spawn {agent[:64]!r}: its allow_spawn is "
                f"{', '.join(parent.agent.allow_spawn) or 'empty'}.",
                f"It may spawn {', '.join(allowed) or 'none'}.",
            )
        if request.label is Label.PUBLIC:
            return
        if self._settings.policy.spawn_from_tainted == "block":
            raise Denied(
                f"This session is {request.label}, and policy.spawn_from_tainted is block.",
                "Do the work in this session.",
            )
        clearance = self._settings.agent(agent).clearance
        if not can_flow(request.label, clearance):
            raise Denied(
                f"This session is {request.label}; the clearance of the agent {agent} is "
                f"{clearance}.",
                "Spawn an agent with a higher clearance.",
            )

    async def _tools(self, parent: Member, agent: str, asked: Sequence[str]) -> tuple[str, ...]:
        """Its agent's tools, of the groups asked for, that its parent has too."""
        child = await self._roster.of_agent(agent)
        # Of what MCP servers bring, the child has what this turn of its parent sees.
        specs = {
            **{
                name: spec
                for name, spec in parent.toolbox.specs.items()
                if spec.server is not None and has(child.sources, spec)
            },
            **child.specs,
        }
        known = groups(specs)
        wanted: set[str] = set()
        for name in asked:
            if name not in known and name not in specs:
                raise InvalidArgument(
                    f"The agent {agent} has no tool or group {name[:80]!r}.",
                    f"It has the groups {', '.join(known)}.",
                )
            wanted |= set(known.get(name, (name,)))
        return tuple(
            name for name in specs if name in parent.toolbox.specs and (not asked or name in wanted)
        )

    def _announcement(self, asked: SessionsSpawn) -> Announcement | None:
        channel, recipient = asked.announce_channel_type, asked.announce_channel_id
        if channel is None and recipient is None:
            return None
        if channel is None or recipient is None:
            raise InvalidArgument(
                "An announcement needs both announce_channel_type and announce_channel_id.",
                "Name a configured channel and a recipient there, or neither.",
            )
        if channel not in self._settings.channels:
            raise InvalidArgument(
                f"There is no channel {channel!r}.",
                f"Channels are {', '.join(self._settings.channels) or 'not configured'}.",
            )
        return Announcement(channel_type=channel, channel_id=recipient)

    def _workspace(self, session_key: str) -> Workspace:
        return Workspace.for_session(
            self._settings.home, session_key, self._settings.limits.file_bytes
        )


def cause_of(request: ToolRequest) -> str:
    """A call as the cause of a run: the same at every attempt, and in no other call."""
    return f"{request.session_key}/{request.turn}/{request.step}/{request.call}"


def may_spawn(settings: Settings, parent: str, agent: str) -> bool:
    """Whether an agent may spawn another, by its setting `allow_spawn`."""
    known = settings.agents.get(parent)
    return (
        known is not None
        and agent in settings.agents
        and any(fnmatchcase(agent, pattern) for pattern in known.allow_spawn)
    )


def _ordered(spawned: Spawned) -> dict[str, object]:
    run = spawned.run
    told: dict[str, object] = {"run_id": run.run_id, "session_key": run.session_key, "async": True}
    if spawned.position is not None:
        told |= {"queued": True, "position": spawned.position}
    return told
