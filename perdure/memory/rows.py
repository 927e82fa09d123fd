"""The rows of a memory table: its schema, and entries to rows and back.

Invariant: an entry comes back from its row as it went in. What else a row holds (terms, places,
vectors) can be made again from the entry.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from perdure.domain.labels import Label
from perdure.domain.memory import MemoryEntry, NewEntry, Origin
from perdure.memory.analysis import date_terms, terms

if TYPE_CHECKING:
    import pyarrow as pa

    from perdure.memory.embedders import Vector

#: Kept in the metadata of every table; a table of a later one is not opened.
SCHEMA_VERSION = 1
#: What an entry is made of; the rest of a row is the index's.
ENTRY_COLUMNS = (
    "id",
    "agent",
    "path",
    "content",
    "tags",
    "memory_type",
    "trust",
    "pinned",
    "created_at",
    "origin",
    "session_key",
    "message_ids",
    "superseded_by",
)
#: What `shown` says of entries that hold, and of those that do not any more.
SHOWN = "all"
SUPERSEDED = "none"
#: Between the terms of a content and those of its date.
PART = "\n"

_SLUG = re.compile(r"[^\w]+")
_SLUG_CHARACTERS = 48


def schema() -> pa.Schema:
    """The columns of a table, vectors aside: each embedder has a column of its own."""
    import pyarrow as pa

    text, texts = pa.string(), pa.list_(pa.string())
    return pa.schema(
        [
            pa.field("id", text, nullable=False),
            pa.field("agent", text),
            pa.field("path", text),
            pa.field("content", text),
            pa.field("tags", texts),
            pa.field("memory_type", text),
            pa.field("trust", text),
            pa.field("pinned", pa.bool_()),
            pa.field("created_at", pa.timestamp("us", tz="UTC")),
            pa.field("origin", text),
            pa.field("session_key", text),
            pa.field("message_ids", texts),
            pa.field("superseded_by", text),
            pa.field("digest", text),
            # Who is shown it: everyone, none since it is superseded, or one session.
            pa.field("shown", text),
            # Its session and its number in it, so that neighbours are found by name.
            pa.field("session", text),
            pa.field("position", pa.int32()),
            pa.field("place", text),
            pa.field("terms", text),
        ],
        metadata={"perdure.schema": str(SCHEMA_VERSION)},
    )


def entry_of(new: NewEntry, now: datetime) -> MemoryEntry:
    """The entry that `new` becomes. Its id is made of what it says, where and whose it is."""
    digest = digest_of(new.content)
    path = f"memory/{new.key}" if new.key is not None else made_path(new.content, digest)
    named = "\0".join((new.tenant, new.agent, path, digest))
    return MemoryEntry(
        id=f"mem_{hashlib.sha256(named.encode()).hexdigest()[:24]}",
        path=path,
        created_at=(new.created_at or now).astimezone(UTC),
        **new.model_dump(exclude={"key", "created_at", "supersedes"}),
    )


def digest_of(content: str) -> str:
    """What tells one content from another."""
    return hashlib.sha256(content.encode()).hexdigest()


def made_path(content: str, digest: str) -> str:
    """The path of an entry that was given none: its first words, and enough to tell it apart."""
    words = _SLUG.sub("-", unicodedata.normalize("NFKC", content[:200]).casefold()).strip("-_")
    slug = words[:_SLUG_CHARACTERS].rpartition("-")[0] if len(words) > _SLUG_CHARACTERS else words
    return f"memory/{slug or words[:_SLUG_CHARACTERS] or 'note'}-{digest[:8]}"


def session_digest(session_key: str | None, entry_id: str) -> str:
    """A short name of a session; what belongs to none is by itself."""
    return hashlib.sha256((session_key or entry_id).encode()).hexdigest()[:16]


def place(session: str, position: int) -> str:
    """Where an entry stands in its session."""
    return f"{session}:{position}"


def row_of(entry: MemoryEntry, position: int) -> dict[str, Any]:
    """The row of an entry, without its vector."""
    session = session_digest(entry.session_key, entry.id)
    own, dated = terms(entry.content), date_terms(entry.created_at)
    return {
        **entry.model_dump(include=set(ENTRY_COLUMNS)),
        "tags": list(entry.tags),
        "message_ids": list(entry.message_ids),
        "digest": digest_of(entry.content),
        "shown": shown(entry),
        "session": session,
        "position": position,
        "place": place(session, position),
        "terms": f"{spaced(own)}{PART}{spaced(dated)}",
    }


def shown(entry: MemoryEntry) -> str:
    """Who is shown an entry, as one word."""
    if entry.origin is Origin.FILE:
        return session_digest(entry.session_key, entry.id)
    return SHOWN if entry.superseded_by is None else SUPERSEDED


def spaced(tokens: list[str]) -> str:
    """Terms as one text in which ` term ` occurs as often as the term does."""
    return " " + "  ".join(tokens) + " "


def to_entry(row: dict[str, Any], tenant: str, label: Label) -> MemoryEntry:
    """The entry of a row."""
    values = {name: row[name] for name in ENTRY_COLUMNS}
    values["tags"] = tuple(values["tags"] or ())
    values["message_ids"] = tuple(values["message_ids"] or ())
    return MemoryEntry(tenant=tenant, label=label, **values)


def batch(rows: list[dict[str, Any]], of: pa.Schema) -> pa.Table:
    """Rows as a table of the schema `of`; what a row has not is null."""
    import pyarrow as pa

    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in of]
    return pa.Table.from_arrays(columns, schema=of)


def vectors(ids: list[str], column: str, values: list[Vector], of: pa.Schema) -> pa.Table:
    """The vectors of known entries, for one column."""
    import pyarrow as pa

    fields = [of.field("id"), of.field(column)]
    columns = [pa.array(ids, pa.string()), pa.array(values, fields[1].type)]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))
