"""Parts of words are found by the words that hold them, each of which is indexed once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_RANK = (
    "CASE NEW.label WHEN 'PUBLIC' THEN 0 WHEN 'INTERNAL' THEN 1 WHEN 'CONFIDENTIAL' THEN 2 "
    "ELSE 3 END"
)
#: `search_tokens` and `search_parted` are functions of the application: perdure.store.search_fts5.
_STATEMENTS = (
    "DROP TRIGGER search_message_added",
    "DROP TABLE search_trigrams",
    """
    CREATE VIRTUAL TABLE search_parts
    USING fts5(word, content='', columnsize=0, tokenize='trigram case_sensitive 1')
    """,
    """
    CREATE TRIGGER search_word_added AFTER INSERT ON search_vocabulary BEGIN
      INSERT INTO search_parts (rowid, word) VALUES (NEW.number, NEW.word);
    END
    """,
    f"""
    CREATE TRIGGER search_message_added AFTER INSERT ON messages WHEN NEW.text <> '' BEGIN
      INSERT INTO search_documents (session, seq, epoch, role, level)
      SELECT number, NEW.seq, NEW.epoch, NEW.role, {_RANK}
      FROM search_sessions WHERE session_key = NEW.session_key;
      INSERT INTO search_words (rowid, tokens)
      SELECT doc, search_tokens(NEW.text, session, tenant)
      FROM search_documents JOIN search_sessions ON number = session
      WHERE doc = (SELECT max(doc) FROM search_documents);
      INSERT OR IGNORE INTO search_vocabulary (word)
      SELECT value FROM json_each(search_parted(NEW.text));
    END
    """,
    """
    INSERT OR IGNORE INTO search_vocabulary (word)
    SELECT value FROM messages, json_each(search_parted(text)) WHERE text <> ''
    """,
)

_POSTGRESQL = (
    "CREATE EXTENSION IF NOT EXISTS pg_trgm",
    "CREATE INDEX search_vocabulary_parts ON search_vocabulary USING gin (word gin_trgm_ops)",
)


def upgrade() -> None:
    op.create_table(
        "search_vocabulary",
        sa.Column("number", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("word", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("number", name=op.f("pk_search_vocabulary")),
        sa.UniqueConstraint("word", name=op.f("uq_search_vocabulary_word")),
    )
    for statement in _POSTGRESQL if op.get_bind().dialect.name == "postgresql" else _STATEMENTS:
        op.execute(statement)
