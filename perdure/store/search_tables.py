"""The tables of full-text search, apart from the engine's own.

Invariant: all of it is derived and written by the engine itself, in the transaction of the session
or message it is about; it may be dropped and made again without losing a word.
"""

from __future__ import annotations

from sqlalchemy import Column, Index, Integer, String, Table, Text

from perdure.store.tables import Moment, metadata

#: What is an engine's own, by how its name begins: nobody describes it elsewhere.
_UNDESCRIBED = (
    "search_words",
    "search_parts",
    "search_summary_words",
    "search_summary_trigrams",
    "search_vocabulary_parts",
)


def is_described(name: str | None, kind: str, _parents: object = None) -> bool:
    """Whether the metadata describes what the database has under this name; for alembic."""
    return kind not in ("table", "index") or not (name or "").startswith(_UNDESCRIBED)


#: One row per session: what decides whether a document may be seen, and small enough to be asked
#: for every candidate. `level` is the rank of the session's label now.
search_sessions = Table(
    "search_sessions",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("session_key", String(512), nullable=False, unique=True),
    Column("tenant", String(512), nullable=False),
    Column("level", Integer, nullable=False),
    Index(None, "tenant"),
)

#: One row per message with text, numbered as they came: `doc` is its number in the engine's
#: indexes. `level` is the rank of the message's own label.
search_documents = Table(
    "search_documents",
    metadata,
    Column("doc", Integer, primary_key=True, autoincrement=True),
    Column("session", Integer, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("role", String(16), nullable=False),
    Column("level", Integer, nullable=False),
)

#: One row per summary of a context, numbered as they were made: as `search_documents` is to the
#: indexes of messages, so is this to those of summaries. They are long, and of many only a few
#: lines are wanted: `folded` is the text as it is compared, white space being one.
search_summary_documents = Table(
    "search_summary_documents",
    metadata,
    Column("doc", Integer, primary_key=True, autoincrement=True),
    Column("session", Integer, nullable=False),
    Column("summary_id", String(64), nullable=False),
    Column("epoch", Integer, nullable=False),
    Column("level", Integer, nullable=False),
    Column("folded", Text, nullable=False),
    Index(None, "session", "summary_id"),
    sqlite_autoincrement=True,
)

#: Every word with parts to be found, once, whoever said it; its parts are the engine's.
search_vocabulary = Table(
    "search_vocabulary",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("word", Text, nullable=False, unique=True),
)

#: Summaries of what was found, made once for a message and a question. `query` is a digest.
search_summaries = Table(
    "search_summaries",
    metadata,
    Column("session_key", String(512), primary_key=True),
    Column("message_id", String(128), primary_key=True),
    Column("query", String(64), primary_key=True),
    Column("summary", Text, nullable=False),
    Column("model", String(256), nullable=False),
    Column("at", Moment, nullable=False),
)
