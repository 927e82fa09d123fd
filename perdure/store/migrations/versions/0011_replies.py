"""Where the answers to what came by a webhook go."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from perdure.store.tables import Moment

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add replies, and let a waiting message say that it has one."""
    op.create_table(
        "replies",
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("message_id", sa.String(length=128), nullable=False),
        sa.Column("channel", sa.String(length=64), nullable=False),
        sa.Column("recipient", sa.String(length=512), nullable=False),
        sa.Column("thread", sa.String(length=128), nullable=True),
        sa.Column("at", Moment(), nullable=False),
        sa.Column("settled_at", Moment(), nullable=True),
        sa.PrimaryKeyConstraint("session_key", "message_id", name=op.f("pk_replies")),
    )
    op.create_index(op.f("ix_replies_settled_at_at"), "replies", ["settled_at", "at"])
    op.add_column(
        "mailbox", sa.Column("replies", sa.Boolean(), server_default=sa.false(), nullable=False)
    )
