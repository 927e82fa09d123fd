"""Tools that others bring: what an MCP server offered at one moment, and how agents name it.

Invariant: a list is a fact. Two lists that say the same are the same, by their digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fnmatch import fnmatchcase

from pydantic import JsonValue

from perdure.domain.messages import Frozen

#: How an entry of an agent's `tools` begins that names a server: `mcp:NAME`, `mcp:NAME/TOOL`.
PREFIX = "mcp:"


class SourceRef(Frozen):
    """A server as an agent names it, and which of its tools: a name or a pattern of names."""

    server: str
    tools: str = "*"


class ListedTool(Frozen):
    """A tool as its server described it, within bounds. What it says of itself is not trusted.

    `called` is its name in Perdure, unique in its list; `read_only` and `idempotent` are the
    server's own word on what a second run means.
    """

    name: str
    called: str
    description: str
    parameters: dict[str, JsonValue]
    read_only: bool = False
    idempotent: bool = False


class LeftOut(Frozen):
    """A tool that is not offered, and why."""

    name: str
    reason: str


class ToolList(Frozen):
    """What a server offered at one moment; nothing when it was not `reachable`."""

    server: str
    reachable: bool = True
    tools: tuple[ListedTool, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    @property
    def digest(self) -> str:
        """The SHA-256 of its content."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def read_reference(entry: str) -> SourceRef | None:
    """The server that an entry of an agent's `tools` names; None where it names none."""
    if not entry.startswith(PREFIX):
        return None
    server, _, tools = entry.removeprefix(PREFIX).partition("/")
    return SourceRef(server=server, tools=tools or "*")


def named(tool: str, patterns: Sequence[str]) -> bool:
    """Whether a server's tool is among those that `patterns` name."""
    return any(fnmatchcase(tool, pattern) for pattern in patterns)
