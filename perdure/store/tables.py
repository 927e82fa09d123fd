"""The tables, in the user's words; read top to bottom they explain what Perdure keeps.

Invariant: `messages` and `events` only grow. What a session is now (`sessions`, `turns`,
`steps`) is updated in the same transaction as the message or event that changed it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    false,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class Moment(TypeDecorator[datetime]):
    """A point in time, always UTC and always aware, also where the database forgets zones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=value.tzinfo or UTC)


def _session(**options: Any) -> Column[str]:
    return Column(
        "session_key", String(512), ForeignKey("sessions.session_key"), nullable=False, **options
    )


#: One row per session. `turn` is the newest turn begun, `epoch` counts resets (older epochs are
#: kept, out of the context), `next_seq` numbers messages.
sessions = Table(
    "sessions",
    metadata,
    Column("session_key", String(512), primary_key=True),
    Column("tenant", String(512), nullable=False),
    Column("user", String(512), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("agent", String(128), nullable=False),
    Column("parent_key", String(512), nullable=True),
    Column("state", String(16), nullable=False),
    Column("label", String(16), nullable=False),
    Column("epoch", Integer, nullable=False, default=0),
    Column("turn", Integer, nullable=False, default=0),
    Column("next_seq", Integer, nullable=False, default=1),
    Column("message_count", Integer, nullable=False, default=0),
    Column("step_count", Integer, nullable=False, default=0),
    Column("input_tokens", Integer, nullable=False, default=0),
    Column("output_tokens", Integer, nullable=False, default=0),
    Column("cost", Float, nullable=True),
    Column("created_at", Moment, nullable=False),
    Column("last_activity", Moment, nullable=False),
    Index(None, "last_activity"),
)

#: Messages put down by their senders and not yet taken into a transcript. A session's workflow
#: knows them by id; the text waits here. No foreign key: the first message precedes its session.
mailbox = Table(
    "mailbox",
    metadata,
    Column("session_key", String(512), primary_key=True),
    Column("message_id", String(128), primary_key=True),
    Column("text", Text, nullable=False),
    Column("sender_kind", String(16), nullable=False),
    Column("sender_id", String(512), nullable=False),
    Column("label", String(16), nullable=False),
    Column("at", Moment, nullable=False),
    Column("joins", Boolean, nullable=False, default=False, server_default=false()),
    Column("cleared", Boolean, nullable=False, default=False, server_default=false()),
    Column("exchange", String(128), nullable=True),
    Column("replies", Boolean, nullable=False, default=False, server_default=false()),
)

#: The transcript: every message ever taken or answered, immutable. `seq` orders it, `tokens` is
#: what it takes of a context, estimated once. `exchange` is the exchange with another session that
#: it belongs to; what is `aside` was said on the side thread of that, and is not in the context.
messages = Table(
    "messages",
    metadata,
    _session(primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("id", String(128), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("turn", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("role", String(16), nullable=False),
    Column("text", Text, nullable=False),
    Column("tool_calls", JSON, nullable=False),
    Column("tool_call_id", String(256), nullable=True),
    Column("tool_name", String(128), nullable=True),
    Column("from_session", String(512), nullable=True),
    Column("label", String(16), nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("at", Moment, nullable=False),
    Column("raw", Text, nullable=True),
    Column("exchange", String(128), nullable=True),
    Column("aside", Boolean, nullable=False, default=False, server_default=false()),
    UniqueConstraint("session_key", "id"),
)

#: One row per turn: one inbox message to one final answer.
turns = Table(
    "turns",
    metadata,
    _session(primary_key=True),
    Column("turn", Integer, primary_key=True),
    Column("message_id", String(128), nullable=False),
    Column("state", String(16), nullable=False),
    Column("answer_id", String(128), nullable=True),
    Column("error", JSON, nullable=True),
    Column("started_at", Moment, nullable=False),
    Column("finished_at", Moment, nullable=True),
    UniqueConstraint("session_key", "message_id"),
)

#: One row per model call of a turn. `attempts` counts calls begun, `reused` counts the times a
#: retry found the committed answer and did not pay again. `outcome` is what the workflow was told.
steps = Table(
    "steps",
    metadata,
    _session(primary_key=True),
    Column("turn", Integer, primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("attempts", Integer, nullable=False),
    Column("reused", Integer, nullable=False, default=0),
    Column("model", String(256), nullable=True),
    Column("message_seq", Integer, nullable=True),
    Column("input_tokens", Integer, nullable=False, default=0),
    Column("output_tokens", Integer, nullable=False, default=0),
    Column("cost", Float, nullable=True),
    Column("outcome", JSON, nullable=True),
    Column("started_at", Moment, nullable=False),
    Column("finished_at", Moment, nullable=True),
)

#: One row per tool call with an effect, written before the effect (claimed) and after (sealed).
#: A claim without a seal means that a process died in between: the outcome is unknown.
tool_claims = Table(
    "tool_claims",
    metadata,
    _session(primary_key=True),
    Column("turn", Integer, primary_key=True),
    Column("step", Integer, primary_key=True),
    Column("call", Integer, primary_key=True),
    Column("tool", String(128), nullable=False),
    Column("status", String(16), nullable=True),
    Column("claims", Integer, nullable=False, default=1),
    Column("claimed_at", Moment, nullable=False),
    Column("sealed_at", Moment, nullable=True),
)

#: The outbox. `id` is the cursor by which gateways tail it; ids rise in commit order.
events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("session_key", String(512), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("turn", Integer, nullable=True),
    Column("step", Integer, nullable=True),
    Column("payload", JSON, nullable=False),
    Column("at", Moment, nullable=False),
    Index(None, "session_key", "id"),
    sqlite_autoincrement=True,
)

#: Streamed text of steps under way: written only while a listener's lease is alive, dropped when
#: the answer commits. Neither history nor outbox.
deltas = Table(
    "deltas",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("session_key", String(512), nullable=False),
    Column("turn", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("text", Text, nullable=False),
    Index(None, "session_key", "id"),
    sqlite_autoincrement=True,
)

#: Who listens to the streamed text of a session, and until when.
listeners = Table(
    "listeners",
    metadata,
    Column("session_key", String(512), primary_key=True),
    Column("listener", String(64), primary_key=True),
    Column("expires_at", Moment, nullable=False),
)

#: The audit trail: every decision, written before the effect it allows, numbered without a gap
#: and chained by `previous` and `hash`. Everything is text as it was hashed: see
#: `perdure.audit.chain`. `turn` and `step` are absent where a decision belongs to none.
audit = Table(
    "audit",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("at", String(32), nullable=False),
    Column("hook", String(64), nullable=False),
    Column("session_key", String(512), nullable=False),
    Column("turn", Integer, nullable=True),
    Column("step", Integer, nullable=True),
    Column("decision", String(32), nullable=False),
    Column("decided_by", String(256), nullable=False),
    Column("rules_evaluated", Text, nullable=False),
    Column("label_before", String(16), nullable=False),
    Column("label_after", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("arguments", Text, nullable=False),
    Column("previous", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Index(None, "session_key", "seq"),
)

#: The ledger of what left through a channel: one row per `cause`, the tool call or announcement
#: that asked for it, written before anything leaves (begun) and after (the outcome). Begun without
#: an outcome means that a process died in between. The text itself lies in the transcript.
deliveries = Table(
    "deliveries",
    metadata,
    _session(primary_key=True),
    Column("cause", String(128), primary_key=True),
    Column("delivery_id", String(64), nullable=False),
    Column("turn", Integer, nullable=True),
    Column("step", Integer, nullable=True),
    Column("channel", String(64), nullable=False),
    Column("recipient", String(512), nullable=False),
    Column("label", String(16), nullable=False),
    Column("level", String(16), nullable=False),
    Column("text_sha256", String(64), nullable=False),
    Column("text_bytes", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", String(512), nullable=True),
    Column("attempts", Integer, nullable=False, default=0),
    Column("begun_at", Moment, nullable=False),
    Column("settled_at", Moment, nullable=True),
    UniqueConstraint("delivery_id"),
)


#: Calls that wait for a person, and what the person said. Bound to the call by `digest`. With the
#: purpose "release": what was withheld from a call, and may be taken in once it is approved.
approvals = Table(
    "approvals",
    metadata,
    Column("id", String(64), primary_key=True),
    _session(),
    Column("turn", Integer, nullable=False),
    Column("step", Integer, nullable=False),
    Column("call", Integer, nullable=False),
    Column("purpose", String(16), nullable=False, default="call", server_default="call"),
    Column("tool", String(128), nullable=False),
    Column("arguments", Text, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("asked_by", String(128), nullable=False),
    Column("reason", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("asked_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False),
    Column("decided_at", Moment, nullable=True),
    Column("decided_by", String(256), nullable=True),
    Column("note", Text, nullable=True),
    Column("changed", Text, nullable=True),
    UniqueConstraint("session_key", "turn", "step", "call", "purpose"),
    Index(None, "state", "asked_at"),
)

#: Files that sessions wrote at a label above PUBLIC. The path "." stands for the whole workspace.
file_labels = Table(
    "file_labels",
    metadata,
    _session(primary_key=True),
    Column("path", String(4096), primary_key=True),
    Column("label", String(16), nullable=False),
)
