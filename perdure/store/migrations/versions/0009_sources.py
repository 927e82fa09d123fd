"""The tool lists of MCP servers, as turns saw them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    moment = sa.DateTime(timezone=True)
    op.create_table(
        "tool_lists",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("server", sa.String(64), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("seen_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_tool_lists")),
    )
    op.create_table(
        "turn_tool_lists",
        sa.Column("session_key", sa.String(512), nullable=False),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("server", sa.String(64), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("pinned_at", moment, nullable=False),
        sa.ForeignKeyConstraint(
            ["session_key"],
            ["sessions.session_key"],
            name=op.f("fk_turn_tool_lists_session_key"),
        ),
        sa.ForeignKeyConstraint(
            ["digest"], ["tool_lists.digest"], name=op.f("fk_turn_tool_lists_digest")
        ),
        sa.PrimaryKeyConstraint("session_key", "turn", "server", name=op.f("pk_turn_tool_lists")),
    )
    op.create_index(
        op.f("ix_turn_tool_lists_server_pinned_at"), "turn_tool_lists", ["server", "pinned_at"]
    )
