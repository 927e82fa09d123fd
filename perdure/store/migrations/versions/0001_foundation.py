"""The foundation: sessions, mailbox, transcript, turns, steps, claims, outbox, deltas."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


#: PostgreSQL tells of events when they are committed; SQLite is asked: perdure.store.engine.
_NOTICE = (
    """
    CREATE FUNCTION perdure_events_written() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      PERFORM pg_notify('perdure_events', '');
      RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER perdure_events_written AFTER INSERT ON events
    FOR EACH STATEMENT EXECUTE FUNCTION perdure_events_written()
    """,
)


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column("seq", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", sa.String(length=32), nullable=False),
        sa.Column("hook", sa.String(length=64), nullable=False),
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=True),
        sa.Column("step", sa.Integer(), nullable=True),
        sa.Column("decision", sa.String(length=32), nullable=False),
        sa.Column("decided_by", sa.String(length=256), nullable=False),
        sa.Column("rules_evaluated", sa.Text(), nullable=False),
        sa.Column("label_before", sa.String(length=16), nullable=False),
        sa.Column("label_after", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("previous", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("seq", name=op.f("pk_audit")),
    )
    op.create_index(op.f("ix_audit_session_key_seq"), "audit", ["session_key", "seq"], unique=False)
    op.create_table(
        "deltas",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deltas")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_deltas_session_key_id"), "deltas", ["session_key", "id"], unique=False)
    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=True),
        sa.Column("step", sa.Integer(), nullable=True),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_events_session_key_id"), "events", ["session_key", "id"], unique=False)
    op.create_table(
        "listeners",
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("listener", sa.String(length=64), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("session_key", "listener", name=op.f("pk_listeners")),
    )
    op.create_table(
        "mailbox",
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("message_id", sa.String(length=128), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("sender_kind", sa.String(length=16), nullable=False),
        sa.Column("sender_id", sa.String(length=512), nullable=False),
        sa.Column("label", sa.String(length=16), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("session_key", "message_id", name=op.f("pk_mailbox")),
    )
    op.create_table(
        "sessions",
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("tenant", sa.String(length=512), nullable=False),
        sa.Column("user", sa.String(length=512), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("agent", sa.String(length=128), nullable=False),
        sa.Column("parent_key", sa.String(length=512), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("label", sa.String(length=16), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("next_seq", sa.Integer(), nullable=False),
        sa.Column("message_count", sa.Integer(), nullable=False),
        sa.Column("step_count", sa.Integer(), nullable=False),
        sa.Column("input_tokens", sa.Integer(), nullable=False),
        sa.Column("output_tokens", sa.Integer(), nullable=False),
        sa.Column("cost", sa.Float(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_activity", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("session_key", name=op.f("pk_sessions")),
    )
    op.create_index(op.f("ix_sessions_last_activity"), "sessions", ["last_activity"], unique=False)
    op.create_table(
        "approvals",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("call", sa.Integer(), nullable=False),
        sa.Column("tool", sa.String(length=128), nullable=False),
        sa.Column("arguments", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("asked_by", sa.String(length=128), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("decided_by", sa.String(length=256), nullable=True),
        sa.Column("note", sa.Text(), nullable=True),
        sa.Column("changed", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["session_key"], ["sessions.session_key"], name=op.f("fk_approvals_session_key")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approvals")),
        sa.UniqueConstraint(
            "session_key",
            "turn",
            "step",
            "call",
            name=op.f("uq_approvals_session_key_turn_step_call"),
        ),
    )
    op.create_index(
        op.f("ix_approvals_state_asked_at"), "approvals", ["state", "asked_at"], unique=False
    )
    op.create_table(
        "deliveries",
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("cause", sa.String(length=128), nullable=False),
        sa.Column("delivery_id", sa.String(length=64), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=True),
        sa.Column("step", sa.Integer(), nullable=True),
        sa.Column("channel", sa.String(length=64), nullable=False),
        sa.Column("recipient", sa.String(length=512), nullable=False),
        sa.Column("label", sa.String(length=16), nullable=False),
        sa.Column("level", sa.String(length=16), nullable=False),
        sa.Column("text_sha256", sa.String(length=64), nullable=False),
        sa.Column("text_bytes", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=512), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("begun_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["session_key"], ["sessions.session_key"], name=op.f("fk_deliveries_session_key")
        ),
        sa.PrimaryKeyConstraint("session_key", "cause", name=op.f("pk_deliveries")),
        sa.UniqueConstraint("delivery_id", name=op.f("uq_deliveries_delivery_id")),
    )
    op.create_table(
        "file_labels",
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("path", sa.String(length=4096), nullable=False),
        sa.Column("label", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_key"], ["sessions.session_key"], name=op.f("fk_file_labels_session_key")
        ),
        sa.PrimaryKeyConstraint("session_key", "path", name=op.f("pk_file_labels")),
    )
    op.create_table(
        "messages",
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("id", sa.String(length=128), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("tool_calls", sa.JSON(), nullable=False),
        sa.Column("tool_call_id", sa.String(length=256), nullable=True),
        sa.Column("tool_name", sa.String(length=128), nullable=True),
        sa.Column("from_session", sa.String(length=512), nullable=True),
        sa.Column("label", sa.String(length=16), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("raw", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["session_key"], ["sessions.session_key"], name=op.f("fk_messages_session_key")
        ),
        sa.PrimaryKeyConstraint("session_key", "seq", name=op.f("pk_messages")),
        sa.UniqueConstraint("session_key", "id", name=op.f("uq_messages_session_key_id")),
    )
    op.create_table(
        "steps",
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("reused", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(length=256), nullable=True),
        sa.Column("message_seq", sa.Integer(), nullable=True),
        sa.Column("input_tokens", sa.Integer(), nullable=False),
        sa.Column("output_tokens", sa.Integer(), nullable=False),
        sa.Column("cost", sa.Float(), nullable=True),
        sa.Column("outcome", sa.JSON(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["session_key"], ["sessions.session_key"], name=op.f("fk_steps_session_key")
        ),
        sa.PrimaryKeyConstraint("session_key", "turn", "step", name=op.f("pk_steps")),
    )
    op.create_table(
        "tool_claims",
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("call", sa.Integer(), nullable=False),
        sa.Column("tool", sa.String(length=128), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=True),
        sa.Column("claims", sa.Integer(), nullable=False),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("sealed_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["session_key"], ["sessions.session_key"], name=op.f("fk_tool_claims_session_key")
        ),
        sa.PrimaryKeyConstraint("session_key", "turn", "step", "call", name=op.f("pk_tool_claims")),
    )
    op.create_table(
        "turns",
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("message_id", sa.String(length=128), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("answer_id", sa.String(length=128), nullable=True),
        sa.Column("error", sa.JSON(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["session_key"], ["sessions.session_key"], name=op.f("fk_turns_session_key")
        ),
        sa.PrimaryKeyConstraint("session_key", "turn", name=op.f("pk_turns")),
        sa.UniqueConstraint(
            "session_key", "message_id", name=op.f("uq_turns_session_key_message_id")
        ),
    )
    if op.get_bind().dialect.name == "postgresql":
        for statement in _NOTICE:
            op.execute(statement)
