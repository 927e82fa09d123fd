"""Who answers in a session: its agent, and for a run what its packet makes of it.

Invariant: a run never has a tool that its packet does not grant, at no step and after no
steering; the packet was cut to what the parent had when it was spawned.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from activities.toolboxes import Toolboxes
from perdure.config import AgentSettings, Settings
from perdure.delegation.packet import SpawnPacket, brief
from perdure.domain.keys import Kind, SessionKey
from perdure.store import Store
from perdure.tools.catalogue import Toolbox

#: Packets kept in memory; they never change.
_KEPT = 1_000


@dataclass(frozen=True)
class Member:
    """An agent as it stands in one session."""

    agent: AgentSettings
    toolbox: Toolbox
    packet: SpawnPacket | None = None

    def offered(self, aside: bool) -> Toolbox:
        """The tools of a turn: one that is taken aside while a call waits may not wait itself."""
        if not aside:
            return self.toolbox
        specs = {name: spec for name, spec in self.toolbox.specs.items() if not spec.resumable}
        return Toolbox(specs=specs, users=self.toolbox.users)


class Roster:
    """Finds the member that answers in a session."""

    def __init__(self, settings: Settings, store: Store, toolboxes: Toolboxes) -> None:
        self._settings = settings
        self._store = store
        self._toolboxes = toolboxes
        self._packets: OrderedDict[str, SpawnPacket | None] = OrderedDict()

    async def of(self, session_key: str, agent: str) -> Member:
        """Who answers.

        Raises:
            NotFound: when there is no such agent.
            InvalidArgument: when its settings name a tool that does not exist.
        """
        settings = self._settings.agent(agent)
        toolbox = await self._toolboxes.of(agent)
        packet = await self._packet(session_key)
        if packet is None:
            return Member(agent=settings, toolbox=toolbox)
        granted = frozenset(packet.tools)
        return Member(
            agent=settings.model_copy(
                update={
                    "instructions": f"{settings.instructions}\n\n{brief(packet)}",
                    "max_steps": packet.max_steps,
                    **({} if packet.model is None else {"model": packet.model}),
                }
            ),
            toolbox=Toolbox(
                specs={name: spec for name, spec in toolbox.specs.items() if name in granted},
                users={name: tool for name, tool in toolbox.users.items() if name in granted},
            ),
            packet=packet,
        )

    async def of_agent(self, agent: str) -> Toolbox:
        """All the tools of an agent, whatever session it is in.

        Raises:
            NotFound: when there is no such agent.
        """
        return await self._toolboxes.of(agent)

    async def _packet(self, session_key: str) -> SpawnPacket | None:
        if session_key not in self._packets:
            if SessionKey.parse(session_key).kind is not Kind.SUB_AGENT:
                return None
            run = await self._store.runs.of_session(session_key)
            self._packets[session_key] = None if run is None else run.packet
            if len(self._packets) > _KEPT:
                self._packets.popitem(last=False)
        return self._packets[session_key]
