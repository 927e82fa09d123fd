"""Tools of MCP servers as this catalogue sees them.

Invariant: what a server says decides how its tool is described and nothing else: its effect, its
time and whether it is there at all are the settings' to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from pydantic import JsonValue, RootModel

from perdure.domain.sources import PREFIX, ListedTool, SourceRef, ToolList, named
from perdure.domain.steps import Lane
from perdure.tools.spec import Effect, ToolSpec


class Trust(Protocol):
    """What the settings say of a server."""

    @property
    def tools(self) -> Sequence[str]:
        """Patterns of the tools that may be used."""
        ...

    @property
    def read_only(self) -> Sequence[str]:
        """Patterns of the tools that have no effect."""
        ...

    @property
    def idempotent(self) -> Sequence[str]:
        """Patterns of the tools that may be repeated."""
        ...

    @property
    def trust_hints(self) -> bool:
        """Whether the server's own word on these counts."""
        ...

    @property
    def timeout(self) -> float | None:
        """Seconds a call may take."""
        ...


class GivenArguments(RootModel[dict[str, JsonValue]]):
    """Arguments of a tool whose server checks them itself: any JSON object."""


def specs_of(
    lists: Iterable[ToolList], wanted: Sequence[SourceRef], trusts: Mapping[str, Trust]
) -> dict[str, ToolSpec]:
    """The tools of `lists` that are `wanted`, by the names models call them.

    A server that is not configured any more has none.
    """
    specs = {}
    for listed in lists:
        trust = trusts.get(listed.server)
        patterns = [one.tools for one in wanted if one.server == listed.server]
        for tool in listed.tools:
            if trust and named(tool.name, patterns) and named(tool.name, trust.tools):
                specs[tool.called] = _spec(listed.server, tool, trust)
    return specs


def has(wanted: Sequence[SourceRef], spec: ToolSpec) -> bool:
    """Whether a tool of a server is among those that are `wanted`."""
    return named(spec.remote, [one.tools for one in wanted if one.server == spec.server])


def group_of(server: str) -> str:
    """The group of a server's tools."""
    return f"{PREFIX}{server}"


def _spec(server: str, tool: ListedTool, trust: Trust) -> ToolSpec:
    return ToolSpec(
        name=tool.called,
        description=f"[MCP server {server}] {tool.description}",
        group=group_of(server),
        parameters=GivenArguments,
        lane=Lane.ACTIVITY,
        effect=_effect(tool, trust),
        timeout=trust.timeout,
        server=server,
        remote=tool.name,
        given=tool.parameters,
    )


def _effect(tool: ListedTool, trust: Trust) -> Effect:
    if named(tool.name, trust.read_only) or (trust.trust_hints and tool.read_only):
        return Effect.READ
    if named(tool.name, trust.idempotent) or (trust.trust_hints and tool.idempotent):
        return Effect.IDEMPOTENT
    return Effect.ONCE
