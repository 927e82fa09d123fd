"""The table of schedules.

Invariant: it says what is to be done, Temporal when; neither holds what the other does.
"""

from __future__ import annotations

from sqlalchemy import Column, Float, Integer, String, Table, Text, UniqueConstraint

from perdure.store.tables import Moment, metadata

#: One row per schedule, named within its tenant; its session may not exist yet. `number` names it
#: in Temporal and in the ids of what it sends, and is never used again. `agent` is who answers in
#: a new session, or who is spawned. `every` is seconds; either it or `cron` is set.
schedules = Table(
    "schedules",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("tenant", String(512), nullable=False),
    Column("name", String(64), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("session_key", String(512), nullable=False),
    Column("agent", String(128), nullable=True),
    Column("text", Text, nullable=False),
    Column("label", String(16), nullable=False),
    Column("cron", String(256), nullable=True),
    Column("every", Float, nullable=True),
    Column("timezone", String(64), nullable=False),
    Column("overlap", String(16), nullable=False),
    Column("created_by", String(512), nullable=False),
    Column("created_at", Moment, nullable=False),
    UniqueConstraint("tenant", "name"),
    sqlite_autoincrement=True,
)
