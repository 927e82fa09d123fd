"""The table of answers that go back to where a message came from.

Invariant: a row is written with its message and never changes, but for `settled_at`.
"""

from __future__ import annotations

from sqlalchemy import Column, Index, String, Table

from perdure.store.tables import Moment, metadata

#: One row per message whose answer leaves by a channel. What became of the answer stands in
#: `deliveries`, under the cause `reply/<message_id>`; `settled_at` says that nothing more is to be
#: done for it. No foreign key: the first message precedes its session.
replies = Table(
    "replies",
    metadata,
    Column("session_key", String(512), primary_key=True),
    Column("message_id", String(128), primary_key=True),
    Column("channel", String(64), nullable=False),
    Column("recipient", String(512), nullable=False),
    Column("thread", String(128), nullable=True),
    Column("at", Moment, nullable=False),
    Column("settled_at", Moment, nullable=True),
    Index(None, "settled_at", "at"),
)
