"""Each agent's tools, resolved once a process.

Invariant: the tools of an agent are what its settings name, at every step of a turn.
"""

from __future__ import annotations

import asyncio

from perdure.config import Settings
from perdure.tools.catalogue import Toolbox, select


class Toolboxes:
    """Toolboxes by agent."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._resolved: dict[str, Toolbox] = {}

    async def of(self, agent: str) -> Toolbox:
        """The tools of an agent.

        Raises:
            InvalidArgument: when its settings name a tool that does not exist.
            NotFound: when there is no such agent.
        """
        if agent not in self._resolved:
            tools = self._settings.agent(agent).tools
            # A user's module may take long to import: in a thread, so that heartbeats go on.
            self._resolved[agent] = await asyncio.to_thread(select, tools)
        return self._resolved[agent]
