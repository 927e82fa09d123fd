"""The tables of messages between sessions: exchanges that are waited for, and what was withheld.

Invariant: an exchange's row tells whose turn it is and what has been said, by reference; the words
stand in the transcripts. What was withheld lies here until a person approves it, and goes into
the mailbox once.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
)

from perdure.store.tables import Moment, metadata

#: One row per call of `sessions_send` that waits: `turn` … `call` is its place in the sender's
#: session, in `epoch` of it. `message_id` is the message whose answer is awaited now, from the
#: target or (`aside`) from the sender itself, and `number` counts the messages before it. `said` is
#: what was answered, as pairs of session and message answered. `turns` are the further turns that
#: were completed; `closing` is the side that has said it is done. `owed` is true while an answer
#: that comes is to be delivered as a late one.
exchanges = Table(
    "exchanges",
    metadata,
    Column("id", String(128), primary_key=True),
    Column("sender_key", String(512), ForeignKey("sessions.session_key"), nullable=False),
    Column("turn", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("call", Integer, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("target_key", String(512), ForeignKey("sessions.session_key"), nullable=False),
    Column("mode", String(16), nullable=False),
    Column("max_turns", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("message_id", String(128), nullable=False),
    Column("number", Integer, nullable=False),
    Column("said", JSON, nullable=False),
    Column("turns", Integer, nullable=False),
    Column("closing", String(16), nullable=True),
    Column("owed", Boolean, nullable=False),
    Column("status", String(32), nullable=True),
    Column("ended_by", String(16), nullable=True),
    Column("input_tokens", Integer, nullable=False),
    Column("output_tokens", Integer, nullable=False),
    Column("cost", Float, nullable=True),
    Column("started_at", Moment, nullable=False),
    Column("until", Moment, nullable=False),
    Column("ended_at", Moment, nullable=True),
    Index(None, "sender_key", "turn"),
    Index(None, "sender_key", "owed"),
)

#: One row per message that may not be taken in without a person's word: `session_key` is who would
#: take it, in `epoch` of it, `from_session` whose words they are, `label` their level.
releases = Table(
    "releases",
    metadata,
    Column("approval_id", String(64), ForeignKey("approvals.id"), primary_key=True),
    Column("session_key", String(512), ForeignKey("sessions.session_key"), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("message_id", String(128), nullable=False),
    Column("from_session", String(512), nullable=False),
    Column("label", String(16), nullable=False),
    Column("text", Text, nullable=False),
    #: When it was laid into the mailbox, or what was decided against it was seen.
    Column("settled_at", Moment, nullable=True),
    Index(None, "session_key", "settled_at"),
)
