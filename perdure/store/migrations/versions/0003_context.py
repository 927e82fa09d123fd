"""The summary DAG of each session's context."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "summaries",
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("first_seq", sa.Integer(), nullable=False),
        sa.Column("last_seq", sa.Integer(), nullable=False),
        sa.Column("messages", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("tokens", sa.Integer(), nullable=False),
        sa.Column("source_tokens", sa.Integer(), nullable=False),
        sa.Column("label", sa.String(length=16), nullable=False),
        sa.Column("earliest_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("latest_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("fallback", sa.Boolean(), nullable=False),
        sa.Column("from_turn", sa.Integer(), nullable=False),
        sa.Column("until_turn", sa.Integer(), nullable=False),
        sa.Column("model", sa.String(length=256), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_key"], ["sessions.session_key"], name=op.f("fk_summaries_session_key")
        ),
        sa.PrimaryKeyConstraint("session_key", "id", name=op.f("pk_summaries")),
    )
    op.create_index(
        op.f("ix_summaries_session_key_epoch_until_turn"),
        "summaries",
        ["session_key", "epoch", "until_turn"],
        unique=False,
    )
    op.create_index(
        op.f("ix_summaries_session_key_epoch_depth_first_seq"),
        "summaries",
        ["session_key", "epoch", "depth", "first_seq"],
        unique=False,
    )
    op.create_table(
        "summary_sources",
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("parent_id", sa.String(length=64), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("child_id", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_key", "child_id"],
            ["summaries.session_key", "summaries.id"],
            name=op.f("fk_summary_sources_session_key_child_id"),
        ),
        sa.ForeignKeyConstraint(
            ["session_key", "parent_id"],
            ["summaries.session_key", "summaries.id"],
            name=op.f("fk_summary_sources_session_key_parent_id"),
        ),
        sa.PrimaryKeyConstraint(
            "session_key", "parent_id", "position", name=op.f("pk_summary_sources")
        ),
        sa.UniqueConstraint(
            "session_key", "child_id", name=op.f("uq_summary_sources_session_key_child_id")
        ),
    )
    op.create_table(
        "sweeps",
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("ended", sa.String(length=32), nullable=True),
        sa.Column("swept_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("exhausted", sa.JSON(), nullable=False),
        sa.Column("day", sa.String(length=10), nullable=False),
        sa.Column("day_tokens", sa.Integer(), nullable=False),
        sa.Column("day_cost", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["session_key"], ["sessions.session_key"], name=op.f("fk_sweeps_session_key")
        ),
        sa.PrimaryKeyConstraint("session_key", name=op.f("pk_sweeps")),
    )
