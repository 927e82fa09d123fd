"""What MCP servers offer to a turn, pinned at its first step.

Invariant: the tools of a turn are the same at all its steps, on every worker and at every replay,
whatever the servers do meanwhile. What they offer by then is for the next turn.
"""

from __future__ import annotations

from collections import OrderedDict

from perdure.config import Settings
from perdure.domain.sources import SourceRef, ToolList
from perdure.sources import Sources
from perdure.store import Store
from perdure.tools.catalogue import Toolbox
from perdure.tools.sources import specs_of

#: Turns whose lists are kept in memory; they never change.
_KEPT = 1_000


class TurnTools:
    """Pins what servers offer, and reads what is pinned."""

    def __init__(self, settings: Settings, store: Store, sources: Sources) -> None:
        self._settings = settings
        self._store = store
        self._sources = sources
        self._turns: OrderedDict[tuple[str, int], tuple[ToolList, ...]] = OrderedDict()

    async def pin(self, session_key: str, turn: int, wanted: tuple[SourceRef, ...]) -> None:
        """Pin what the servers offer now, unless the turn has its lists already. The session is
        stored by then."""
        if not wanted or await self._lists(session_key, turn):
            return
        servers = list(dict.fromkeys(one.server for one in wanted))
        offered = await self._sources.lists(servers)
        pinned = await self._store.tool_lists.pin(session_key, turn, offered)
        self._keep(session_key, turn, pinned)

    async def with_pinned(self, toolbox: Toolbox, session_key: str, turn: int | None) -> Toolbox:
        """A toolbox with what is pinned to a turn, or to the newest that has anything pinned. A
        name that the agent has otherwise is not taken from it."""
        if not toolbox.sources:
            return toolbox
        if turn is None:
            lists = await self._store.tool_lists.pinned(session_key)
        else:
            lists = await self._lists(session_key, turn)
        brought = specs_of(lists, toolbox.sources, self._settings.mcp)
        return Toolbox(
            specs={**brought, **toolbox.specs}, users=toolbox.users, sources=toolbox.sources
        )

    async def unreachable(self, session_key: str, turn: int) -> list[str]:
        """The servers that could not be reached when a turn began."""
        lists = await self._lists(session_key, turn)
        return [listed.server for listed in lists if not listed.reachable]

    async def _lists(self, session_key: str, turn: int) -> tuple[ToolList, ...]:
        known = self._turns.get((session_key, turn))
        if known is None:
            known = await self._store.tool_lists.pinned(session_key, turn)
            if known:
                self._keep(session_key, turn, known)
        return known

    def _keep(self, session_key: str, turn: int, lists: tuple[ToolList, ...]) -> None:
        self._turns[session_key, turn] = lists
        if len(self._turns) > _KEPT:
            self._turns.popitem(last=False)
