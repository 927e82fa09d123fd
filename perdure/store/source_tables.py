"""The tables of tool lists: what MCP servers offered, and which list a turn saw.

Invariant: a list is kept once, under its digest, and never changes; a turn's lists never change.
"""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, Integer, String, Table, Text

from perdure.store.tables import Moment, metadata

#: What a server offered, as JSON; `seen_at` is when it was seen for the first time.
tool_lists = Table(
    "tool_lists",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("server", String(64), nullable=False),
    Column("content", Text, nullable=False),
    Column("seen_at", Moment, nullable=False),
)

#: The list of a server that a turn saw at its first step.
turn_tool_lists = Table(
    "turn_tool_lists",
    metadata,
    Column("session_key", String(512), ForeignKey("sessions.session_key"), primary_key=True),
    Column("turn", Integer, primary_key=True),
    Column("server", String(64), primary_key=True),
    Column("digest", String(64), ForeignKey("tool_lists.digest"), nullable=False),
    Column("pinned_at", Moment, nullable=False),
    Index(None, "server", "pinned_at"),
)
