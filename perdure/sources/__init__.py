"""MCP servers that agents take tools from.

Invariant: this room alone speaks MCP as a client. What a server says is bounded where it comes in,
and nothing of it is believed: not its descriptions, and not its word on what its tools do.
"""

from perdure.sources.servers import Sources

__all__ = ["Sources"]
