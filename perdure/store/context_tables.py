"""The tables of the context DAG: its nodes, how they hang together, and what sweeps came to.

Invariant: the messages themselves are the truth and lie in `messages`; everything here is a view
over them and may be lost without losing a word.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from perdure.store.tables import Moment, metadata

#: The `until_turn` of a summary that nothing has replaced. A number, not NULL, so that what a turn
#: sees is one range of one index.
FOREVER = 2_147_483_647

#: One row per summary. Its span `first_seq` to `last_seq` may end behind its last message, at a
#: place kept for a tool result: a result that comes late lies under the summary of its call.
#: A turn sees it from `from_turn` on, up to but without `until_turn`.
summaries = Table(
    "summaries",
    metadata,
    Column("session_key", String(512), ForeignKey("sessions.session_key"), primary_key=True),
    Column("id", String(64), primary_key=True),
    Column("epoch", Integer, nullable=False),
    Column("depth", Integer, nullable=False),
    Column("first_seq", Integer, nullable=False),
    Column("last_seq", Integer, nullable=False),
    Column("messages", Integer, nullable=False),
    Column("text", Text, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("source_tokens", Integer, nullable=False),
    Column("label", String(16), nullable=False),
    Column("earliest_at", Moment, nullable=False),
    Column("latest_at", Moment, nullable=False),
    Column("fallback", Boolean, nullable=False),
    Column("from_turn", Integer, nullable=False),
    Column("until_turn", Integer, nullable=False, default=FOREVER),
    Column("model", String(256), nullable=True),
    Column("created_at", Moment, nullable=False),
    Index(None, "session_key", "epoch", "until_turn"),
    Index(None, "session_key", "epoch", "depth", "first_seq"),
)

#: Which summaries a condensed one was made of, in order. A summary has one parent at most.
summary_sources = Table(
    "summary_sources",
    metadata,
    Column("session_key", String(512), primary_key=True),
    Column("parent_id", String(64), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("child_id", String(64), nullable=False),
    ForeignKeyConstraint(["session_key", "parent_id"], ["summaries.session_key", "summaries.id"]),
    ForeignKeyConstraint(["session_key", "child_id"], ["summaries.session_key", "summaries.id"]),
    UniqueConstraint("session_key", "child_id"),
)

#: One row per session that was ever swept: how the last sweep ended, which chunks nothing could be
#: gained from (the id that their summary would have, to what was tried), and what was spent on
#: `day`, an ISO date in UTC.
sweeps = Table(
    "sweeps",
    metadata,
    Column("session_key", String(512), ForeignKey("sessions.session_key"), primary_key=True),
    Column("ended", String(32), nullable=True),
    Column("swept_at", Moment, nullable=True),
    Column("exhausted", JSON, nullable=False),
    Column("day", String(10), nullable=False),
    Column("day_tokens", Integer, nullable=False, default=0),
    Column("day_cost", Float, nullable=True),
)
