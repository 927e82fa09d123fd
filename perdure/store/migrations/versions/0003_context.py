"""The summary DAG of each session's context, with FTS5 indexes kept by triggers; on PostgreSQL one
of `tsvector`, into which the store writes: perdure.store.search_tsvector.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_RANK = (
    "CASE NEW.label WHEN 'PUBLIC' THEN 0 WHEN 'INTERNAL' THEN 1 WHEN 'CONFIDENTIAL' THEN 2 "
    "ELSE 3 END"
)
_OF = (
    "session = (SELECT number FROM search_sessions WHERE session_key = {0}.session_key) "
    "AND summary_id = {0}.id"
)

#: As for messages: `search_tokens` and `search_flat` are functions of the application. What is
#: dropped leaves its postings behind, which lead nowhere: numbers of documents are never reused.
#: There are few summaries, and they are long: where their trigrams stand is kept too.
_SEARCH = (
    """
    CREATE VIRTUAL TABLE search_summary_words
    USING fts5(tokens, content='', columnsize=0, tokenize='ascii')
    """,
    """
    CREATE VIRTUAL TABLE search_summary_trigrams
    USING fts5(folded, content='', columnsize=0, tokenize='trigram case_sensitive 1')
    """,
    f"""
    CREATE TRIGGER search_summary_added AFTER INSERT ON summaries BEGIN
      INSERT INTO search_summary_documents (session, summary_id, epoch, level, folded)
      SELECT number, NEW.id, NEW.epoch, {_RANK}, search_flat(NEW.text)
      FROM search_sessions WHERE session_key = NEW.session_key;
      INSERT INTO search_summary_words (rowid, tokens)
      SELECT doc, search_tokens(NEW.text, session, tenant)
      FROM search_summary_documents JOIN search_sessions ON number = session
      WHERE doc = (SELECT max(doc) FROM search_summary_documents);
      INSERT INTO search_summary_trigrams (rowid, folded)
      SELECT doc, folded FROM search_summary_documents
      WHERE doc = (SELECT max(doc) FROM search_summary_documents);
    END
    """,
    f"""
    CREATE TRIGGER search_summary_labelled AFTER UPDATE OF label ON summaries
    WHEN NEW.label <> OLD.label BEGIN
      UPDATE search_summary_documents SET level = {_RANK} WHERE {_OF.format("NEW")};
    END
    """,
    f"""
    CREATE TRIGGER search_summary_dropped AFTER DELETE ON summaries BEGIN
      DELETE FROM search_summary_documents WHERE {_OF.format("OLD")};
    END
    """,
)

#: There parts of words are looked for in `folded`, of the one session that is asked.
_POSTGRESQL = (
    """
    CREATE TABLE search_summary_words (
      doc BIGINT PRIMARY KEY REFERENCES search_summary_documents (doc) ON DELETE CASCADE,
      tokens TSVECTOR NOT NULL
    )
    """,
    "CREATE INDEX search_summary_words_tokens ON search_summary_words USING gin (tokens)",
    f"""
    CREATE FUNCTION search_summary_labelled() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      UPDATE search_summary_documents SET level = {_RANK} WHERE {_OF.format("NEW")};
      RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER search_summary_labelled AFTER UPDATE OF label ON summaries
    FOR EACH ROW WHEN (NEW.label <> OLD.label) EXECUTE FUNCTION search_summary_labelled()
    """,
    f"""
    CREATE FUNCTION search_summary_dropped() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      DELETE FROM search_summary_documents WHERE {_OF.format("OLD")};
      RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER search_summary_dropped AFTER DELETE ON summaries
    FOR EACH ROW EXECUTE FUNCTION search_summary_dropped()
    """,
)


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
    op.create_table(
        "search_summary_documents",
        sa.Column("doc", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("session", sa.Integer(), nullable=False),
        sa.Column("summary_id", sa.String(length=64), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.Column("folded", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("doc", name=op.f("pk_search_summary_documents")),
        sqlite_autoincrement=True,
    )
    op.create_index(
        op.f("ix_search_summary_documents_session_summary_id"),
        "search_summary_documents",
        ["session", "summary_id"],
    )
    for statement in _POSTGRESQL if op.get_bind().dialect.name == "postgresql" else _SEARCH:
        op.execute(statement)
