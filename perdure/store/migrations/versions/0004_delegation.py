"""Runs of sub-agents, what calls wait for, how a message may come in, side threads."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(160), nullable=False),
        sa.Column("session_key", sa.String(512), nullable=False),
        sa.Column("parent_key", sa.String(512), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("parent_turn", sa.Integer(), nullable=False),
        sa.Column("parent_step", sa.Integer(), nullable=False),
        sa.Column("parent_call", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("sync", sa.Boolean(), nullable=False),
        sa.Column("agent", sa.String(128), nullable=False),
        sa.Column("packet", sa.JSON(), nullable=False),
        sa.Column("label", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("stop", sa.String(32), nullable=True),
        sa.Column("end_reason", sa.String(32), nullable=True),
        sa.Column("token_budget", sa.Integer(), nullable=True),
        sa.Column("cost_budget", sa.Float(), nullable=True),
        sa.Column("reserved_tokens", sa.Integer(), nullable=False),
        sa.Column("reserved_cost", sa.Float(), nullable=False),
        sa.Column("repairs", sa.Integer(), nullable=False),
        sa.Column("result", sa.JSON(), nullable=True),
        sa.Column("follows", sa.String(160), nullable=True),
        sa.Column("cause", sa.String(640), nullable=False),
        sa.Column("steered_at", moment, nullable=True),
        sa.Column("queued_at", moment, nullable=False),
        sa.Column("queue_until", moment, nullable=False),
        sa.Column("started_at", moment, nullable=True),
        sa.Column("run_until", moment, nullable=True),
        sa.Column("ended_at", moment, nullable=True),
        sa.Column("handed_at", moment, nullable=True),
        sa.ForeignKeyConstraint(
            ["parent_key"], ["sessions.session_key"], name=op.f("fk_runs_parent_key")
        ),
        sa.PrimaryKeyConstraint("run_id", name=op.f("pk_runs")),
        sa.UniqueConstraint("session_key", name=op.f("uq_runs_session_key")),
    )
    op.create_index(op.f("ix_runs_parent_key_state"), "runs", ["parent_key", "state"])
    op.create_index(op.f("ix_runs_state"), "runs", ["state"])
    op.create_index(op.f("ix_runs_ended_at"), "runs", ["ended_at"])
    op.create_index(op.f("ix_runs_path"), "runs", ["path"])
    op.create_index(op.f("ix_runs_follows"), "runs", ["follows"])
    op.create_table(
        "waits",
        sa.Column("session_key", sa.String(512), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("call", sa.Integer(), nullable=False),
        sa.Column("target_key", sa.String(512), nullable=False),
        sa.Column("until", moment, nullable=False),
        sa.ForeignKeyConstraint(
            ["session_key"], ["sessions.session_key"], name=op.f("fk_waits_session_key")
        ),
        sa.PrimaryKeyConstraint(
            "session_key", "turn", "step", "call", "target_key", name=op.f("pk_waits")
        ),
    )
    op.create_index(op.f("ix_waits_target_key"), "waits", ["target_key"])
    false = sa.false()
    op.add_column("mailbox", sa.Column("joins", sa.Boolean(), nullable=False, server_default=false))
    op.add_column(
        "mailbox", sa.Column("cleared", sa.Boolean(), nullable=False, server_default=false)
    )
    op.add_column("mailbox", sa.Column("exchange", sa.String(128), nullable=True))
    op.add_column("messages", sa.Column("exchange", sa.String(128), nullable=True))
    op.add_column(
        "messages", sa.Column("aside", sa.Boolean(), nullable=False, server_default=false)
    )
