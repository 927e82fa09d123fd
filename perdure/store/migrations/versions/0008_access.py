"""The API keys of the gateway, and which session is whose doing."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add what tells who asks."""
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("hash", sa.String(256), nullable=False),
        sa.Column("tenant", sa.String(512), nullable=True),
        sa.Column("scopes", sa.JSON(), nullable=False),
        sa.Column("clearance", sa.String(16), nullable=False),
        sa.Column("rate", sa.Integer(), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("expires_at", moment, nullable=True),
        sa.Column("revoked_at", moment, nullable=True),
        sa.Column("last_used", moment, nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
    )
    op.create_table(
        "session_callers",
        sa.Column("session_key", sa.String(512), nullable=False),
        sa.Column("caller", sa.String(256), nullable=False),
        sa.PrimaryKeyConstraint("session_key", "caller", name=op.f("pk_session_callers")),
    )
