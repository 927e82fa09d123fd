"""The tables of who asks from outside.

Invariant: of a key only what cannot be turned back into it is kept.
"""

from __future__ import annotations

from sqlalchemy import JSON, Column, Integer, String, Table

from perdure.store.tables import Moment, metadata

#: One row per API key, kept for ever: `id` is the public part of its text, `hash` the argon2id of
#: the secret part. `tenant` None is every tenant, `rate` is requests a minute. `last_used` is
#: right to the minute.
api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", String(128), nullable=False),
    Column("hash", String(256), nullable=False),
    Column("tenant", String(512), nullable=True),
    Column("scopes", JSON, nullable=False),
    Column("clearance", String(16), nullable=False),
    Column("rate", Integer, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=True),
    Column("revoked_at", Moment, nullable=True),
    Column("last_used", Moment, nullable=True),
)

#: Which callers have written to which session: it stays there for them when its label rises above
#: what they may be told. No foreign key: the first message precedes its session.
session_callers = Table(
    "session_callers",
    metadata,
    Column("session_key", String(512), primary_key=True),
    Column("caller", String(256), primary_key=True),
)
