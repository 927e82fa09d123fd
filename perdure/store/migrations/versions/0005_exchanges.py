"""Messages between sessions that are waited for, and what was withheld from a session."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_CALL = ("session_key", "turn", "step", "call")


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    with op.batch_alter_table("approvals") as approvals:
        approvals.add_column(
            sa.Column("purpose", sa.String(16), nullable=False, server_default="call")
        )
        approvals.drop_constraint(op.f("uq_approvals_session_key_turn_step_call"), type_="unique")
        approvals.create_unique_constraint(
            op.f("uq_approvals_session_key_turn_step_call_purpose"), [*_CALL, "purpose"]
        )
    op.create_table(
        "exchanges",
        sa.Column("id", sa.String(128), nullable=False),
        sa.Column("sender_key", sa.String(512), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("call", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("target_key", sa.String(512), nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("max_turns", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("message_id", sa.String(128), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("said", sa.JSON(), nullable=False),
        sa.Column("turns", sa.Integer(), nullable=False),
        sa.Column("closing", sa.String(16), nullable=True),
        sa.Column("owed", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(32), nullable=True),
        sa.Column("ended_by", sa.String(16), nullable=True),
        sa.Column("input_tokens", sa.Integer(), nullable=False),
        sa.Column("output_tokens", sa.Integer(), nullable=False),
        sa.Column("cost", sa.Float(), nullable=True),
        sa.Column("started_at", moment, nullable=False),
        sa.Column("until", moment, nullable=False),
        sa.Column("ended_at", moment, nullable=True),
        sa.ForeignKeyConstraint(
            ["sender_key"], ["sessions.session_key"], name=op.f("fk_exchanges_sender_key")
        ),
        sa.ForeignKeyConstraint(
            ["target_key"], ["sessions.session_key"], name=op.f("fk_exchanges_target_key")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_exchanges")),
    )
    op.create_index(op.f("ix_exchanges_sender_key_turn"), "exchanges", ["sender_key", "turn"])
    op.create_index(op.f("ix_exchanges_sender_key_owed"), "exchanges", ["sender_key", "owed"])
    op.create_table(
        "releases",
        sa.Column("approval_id", sa.String(64), nullable=False),
        sa.Column("session_key", sa.String(512), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("message_id", sa.String(128), nullable=False),
        sa.Column("from_session", sa.String(512), nullable=False),
        sa.Column("label", sa.String(16), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("settled_at", moment, nullable=True),
        sa.ForeignKeyConstraint(
            ["approval_id"], ["approvals.id"], name=op.f("fk_releases_approval_id")
        ),
        sa.ForeignKeyConstraint(
            ["session_key"], ["sessions.session_key"], name=op.f("fk_releases_session_key")
        ),
        sa.PrimaryKeyConstraint("approval_id", name=op.f("pk_releases")),
    )
    op.create_index(
        op.f("ix_releases_session_key_settled_at"), "releases", ["session_key", "settled_at"]
    )
