"""Full-text search over the transcript: two FTS5 indexes, kept by triggers; on PostgreSQL one of
`tsvector`, into which the store writes: perdure.store.search_tsvector.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_RANK = (
    "CASE {0}.label WHEN 'PUBLIC' THEN 0 WHEN 'INTERNAL' THEN 1 WHEN 'CONFIDENTIAL' THEN 2 "
    "ELSE 3 END"
)
#: `search_tokens` and `search_folded` are functions of the application: perdure.store.search_fts5.
_WORDS = "search_tokens({text}, session, tenant)"

_INDEXES = (
    """
    CREATE VIRTUAL TABLE search_words
    USING fts5(tokens, content='', columnsize=0, tokenize='ascii')
    """,
    """
    CREATE VIRTUAL TABLE search_trigrams
    USING fts5(folded, content='', columnsize=0, detail=none, tokenize='trigram case_sensitive 1')
    """,
)

_TRIGGERS = (
    f"""
    CREATE TRIGGER search_session_added AFTER INSERT ON sessions BEGIN
      INSERT INTO search_sessions (session_key, tenant, level)
      VALUES (NEW.session_key, NEW.tenant, {_RANK.format("NEW")});
    END
    """,
    f"""
    CREATE TRIGGER search_session_labelled AFTER UPDATE OF label ON sessions
    WHEN NEW.label <> OLD.label BEGIN
      UPDATE search_sessions SET level = {_RANK.format("NEW")}
      WHERE session_key = NEW.session_key;
    END
    """,
    f"""
    CREATE TRIGGER search_message_added AFTER INSERT ON messages WHEN NEW.text <> '' BEGIN
      INSERT INTO search_documents (session, seq, epoch, role, level)
      SELECT number, NEW.seq, NEW.epoch, NEW.role, {_RANK.format("NEW")}
      FROM search_sessions WHERE session_key = NEW.session_key;
      INSERT INTO search_words (rowid, tokens)
      SELECT doc, {_WORDS.format(text="NEW.text")}
      FROM search_documents JOIN search_sessions ON number = session
      WHERE doc = (SELECT max(doc) FROM search_documents);
      INSERT INTO search_trigrams (rowid, folded)
      SELECT max(doc), search_folded(NEW.text) FROM search_documents;
    END
    """,
)

_TEXTS = """
    FROM search_documents
    JOIN search_sessions ON number = session
    JOIN messages ON messages.session_key = search_sessions.session_key
      AND messages.seq = search_documents.seq
    ORDER BY doc
"""
_BACKFILL = (
    f"""
    INSERT INTO search_sessions (session_key, tenant, level)
    SELECT session_key, tenant, {_RANK.format("sessions")} FROM sessions ORDER BY created_at
    """,
    f"""
    INSERT INTO search_documents (session, seq, epoch, role, level)
    SELECT number, seq, epoch, role, {_RANK.format("messages")}
    FROM messages JOIN search_sessions ON search_sessions.session_key = messages.session_key
    WHERE text <> '' ORDER BY at, number, seq
    """,
    f"""
    INSERT INTO search_words (rowid, tokens)
    SELECT doc, {_WORDS.format(text="text")} {_TEXTS}
    """,
    f"INSERT INTO search_trigrams (rowid, folded) SELECT doc, search_folded(text) {_TEXTS}",
)

_POSTGRESQL = (
    """
    CREATE TABLE search_words (
      doc BIGINT PRIMARY KEY REFERENCES search_documents (doc),
      tokens TSVECTOR NOT NULL
    )
    """,
    "CREATE INDEX search_words_tokens ON search_words USING gin (tokens)",
    f"""
    CREATE FUNCTION search_session_added() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      INSERT INTO search_sessions (session_key, tenant, level)
      VALUES (NEW.session_key, NEW.tenant, {_RANK.format("NEW")});
      RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER search_session_added AFTER INSERT ON sessions
    FOR EACH ROW EXECUTE FUNCTION search_session_added()
    """,
    f"""
    CREATE FUNCTION search_session_labelled() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      UPDATE search_sessions SET level = {_RANK.format("NEW")}
      WHERE session_key = NEW.session_key;
      RETURN NULL;
    END $$
    """,
    """
    CREATE TRIGGER search_session_labelled AFTER UPDATE OF label ON sessions
    FOR EACH ROW WHEN (NEW.label <> OLD.label) EXECUTE FUNCTION search_session_labelled()
    """,
)


def upgrade() -> None:
    op.create_table(
        "search_documents",
        sa.Column("doc", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("session", sa.Integer(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("doc", name=op.f("pk_search_documents")),
    )
    op.create_table(
        "search_sessions",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("tenant", sa.String(length=512), nullable=False),
        sa.Column("level", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_search_sessions")),
        sa.UniqueConstraint("session_key", name=op.f("uq_search_sessions_session_key")),
    )
    op.create_index(op.f("ix_search_sessions_tenant"), "search_sessions", ["tenant"], unique=False)
    op.create_table(
        "search_summaries",
        sa.Column("session_key", sa.String(length=512), nullable=False),
        sa.Column("message_id", sa.String(length=128), nullable=False),
        sa.Column("query", sa.String(length=64), nullable=False),
        sa.Column("summary", sa.Text(), nullable=False),
        sa.Column("model", sa.String(length=256), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint(
            "session_key", "message_id", "query", name=op.f("pk_search_summaries")
        ),
    )
    is_postgresql = op.get_bind().dialect.name == "postgresql"
    for statement in _POSTGRESQL if is_postgresql else (*_INDEXES, *_BACKFILL, *_TRIGGERS):
        op.execute(statement)
