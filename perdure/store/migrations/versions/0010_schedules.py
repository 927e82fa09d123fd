"""What is to be done again and again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from perdure.store.tables import Moment

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add schedules."""
    op.create_table(
        "schedules",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("tenant", sa.String(length=512), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("agent", sa.String(length=128), nullable=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("label", sa.String(length=16), nullable=False),
        sa.Column("cron", sa.String(length=256), nullable=True),
        sa.Column("every", sa.Float(), nullable=True),
        sa.Column("timezone", sa.String(length=64), nullable=False),
        sa.Column("overlap", sa.String(length=16), nullable=False),
        sa.Column("created_by", sa.String(length=512), nullable=False),
        sa.Column("created_at", Moment(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_schedules")),
        sa.UniqueConstraint("tenant", "name", name=op.f("uq_schedules_tenant_name")),
        sqlite_autoincrement=True,
    )
