"""Who answers in a session: its agent, and for a run what its packet makes of it.

Invariant: a run never has a tool that its packet does not grant, at no step and after no
steering; the packet was cut to what the parent had when it was spawned.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from activities.toolboxes import Toolboxes
from activities.turn_tools import TurnTools
from perdure.config import AgentSettings, Settings
from perdure.delegation.packet import SpawnPacket, brief
from perdure.domain.keys import Kind, SessionKey
from perdure.sources import Sources
from perdure.store import Store
from perdure.store.runs import Run
from perdure.tools.catalogue import Toolbox

#: Runs kept in memory; of them is used what never changes.
_KEPT = 1_000


@dataclass(frozen=True)
class Member:
    """An agent as it stands in one session."""

    agent: AgentSettings
    toolbox: Toolbox
    packet: SpawnPacket | None = None
    #: Whether what it uses is bounded by a budget.
    bounded: bool = False

    def offered(self, aside: bool) -> Toolbox:
        """The tools of a turn: one that is taken aside while a call waits may not wait itself."""
        if not aside:
            return self.toolbox
        specs = {name: spec for name, spec in self.toolbox.specs.items() if not spec.resumable}
        return Toolbox(specs=specs, users=self.toolbox.users, sources=self.toolbox.sources)


class Roster:
    """Finds the member that answers in a session."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        toolboxes: Toolboxes,
        sources: Sources | None = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._toolboxes = toolboxes
        #: What MCP servers bring, turn by turn.
        self.turn_tools = TurnTools(
            settings, store, sources or Sources(settings.mcp, settings.home)
        )
        self._runs: OrderedDict[str, Run | None] = OrderedDict()

    async def begins(self, session_key: str, agent: str, turn: int) -> Member:
        """Who answers in a turn at its steps: the first one pins what its MCP servers offer.

        Raises:
            PerdureError: as `of` does.
        """
        toolbox = await self._toolboxes.of(agent)
        await self.turn_tools.pin(session_key, turn, toolbox.sources)
        return await self.of(session_key, agent, turn)

    async def of(self, session_key: str, agent: str, turn: int | None = None) -> Member:
        """Who answers, with the tools that a turn has; without one, those of the newest.

        Raises:
            NotFound: when there is no such agent.
            InvalidArgument: when its settings name a tool that does not exist.
        """
        settings = self._settings.agent(agent)
        toolbox = await self._toolboxes.of(agent)
        toolbox = await self.turn_tools.with_pinned(toolbox, session_key, turn)
        run = await self._run(session_key)
        if run is None:
            return Member(agent=settings, toolbox=toolbox)
        packet = run.packet
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
                sources=toolbox.sources,
            ),
            packet=packet,
            bounded=run.token_budget is not None or run.cost_budget is not None,
        )

    async def of_agent(self, agent: str) -> Toolbox:
        """All the tools of an agent, whatever session it is in.

        Raises:
            NotFound: when there is no such agent.
        """
        return await self._toolboxes.of(agent)

    async def _run(self, session_key: str) -> Run | None:
        if session_key not in self._runs:
            if SessionKey.parse(session_key).kind is not Kind.SUB_AGENT:
                return None
            self._runs[session_key] = await self._store.runs.of_session(session_key)
            if len(self._runs) > _KEPT:
                self._runs.popitem(last=False)
        return self._runs[session_key]
