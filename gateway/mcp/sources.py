"""What the MCP servers of the settings offer, for people.

Invariant: looking asks for lists and calls nothing. A change of what agents read of a server is
told, by comparing with what a turn saw last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import datetime

from perdure.config import Settings
from perdure.domain.errors import PerdureError
from perdure.domain.labels import Label
from perdure.domain.messages import Frozen
from perdure.domain.sources import LeftOut, SourceRef, ToolList, read_reference
from perdure.sources import Sources
from perdure.store import Store
from perdure.tools import Effect
from perdure.tools.sources import specs_of


class ToolView(Frozen):
    """A tool of a server: what models call it, and what a second run is taken to mean."""

    name: str
    called: str
    description: str
    effect: Effect


class Changes(Frozen):
    """What is different from what a turn saw last, by the names models call."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    described_anew: tuple[str, ...] = ()

    def named(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The kinds of change that there are, in words."""
        for what, names in (
            ("new", self.added),
            ("gone", self.removed),
            ("described anew", self.described_anew),
        ):
            if names:
                yield what, names


class SourceView(Frozen):
    """A server as it is now. `last_used` is when the newest turn began that has seen its list."""

    name: str
    where: str
    reachable: bool
    error: str | None = None
    clearance: Label
    label: Label
    agents: tuple[str, ...]
    digest: str | None = None
    tools: tuple[ToolView, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    last_used: datetime | None = None
    changes: Changes = Changes()


async def look(settings: Settings) -> list[SourceView]:
    """Every server of the settings, reached now.

    Raises:
        Unavailable: when the store cannot be opened.
    """
    sources = Sources(settings.mcp, settings.home)
    store = await Store.open(settings.store_url)
    try:
        looks = (_look(settings, sources, store, name) for name in settings.mcp)
        return list(await asyncio.gather(*looks))
    finally:
        await sources.close()
        await store.close()


async def _look(settings: Settings, sources: Sources, store: Store, name: str) -> SourceView:
    server = settings.mcp[name]
    view = SourceView(
        name=name,
        where=server.url or " ".join([server.command or "", *server.args]),
        reachable=False,
        clearance=server.clearance,
        label=server.level,
        agents=tuple(
            agent
            for agent, known in settings.agents.items()
            if any((one := read_reference(entry)) and one.server == name for entry in known.tools)
        ),
    )
    last = await store.tool_lists.last_pinned(name)
    if last is not None:
        view = view.model_copy(update={"last_used": last.at})
    try:
        listed = await sources.listing(name)
    except PerdureError as error:
        return view.model_copy(update={"error": str(error)})
    specs = specs_of([listed], [SourceRef(server=name)], settings.mcp)
    return view.model_copy(
        update={
            "reachable": True,
            "digest": listed.digest,
            "tools": tuple(
                ToolView(
                    name=tool.name,
                    called=tool.called,
                    description=tool.description,
                    effect=specs[tool.called].effect,
                )
                for tool in listed.tools
            ),
            "left_out": listed.left_out,
            "changes": _changes(last.listed, listed) if last else Changes(),
        }
    )


def _changes(before: ToolList, now: ToolList) -> Changes:
    old = {tool.called: tool for tool in before.tools}
    new = {tool.called: tool for tool in now.tools}
    return Changes(
        added=tuple(name for name in new if name not in old),
        removed=tuple(name for name in old if name not in new),
        described_anew=tuple(name for name in new if name in old and new[name] != old[name]),
    )
