"""The labels of files that sessions wrote above PUBLIC; a file without a row is PUBLIC.

Invariant: a file's label only rises, as long as its session lives; a reset of the session does
not lower it, so what was written in secret is still secret to the session that comes after.
"""

from __future__ import annotations

import posixpath

from sqlalchemy import Connection, bindparam, insert, select, update

from perdure.domain.labels import Label, join
from perdure.store.tables import file_labels

#: The path that stands for a whole workspace: written to by a tool whose files we do not know.
EVERYTHING = "."


_OF_SESSION = select(file_labels.c.path, file_labels.c.label).where(
    file_labels.c.session_key == bindparam("key")
)


def labels_of(connection: Connection, session_key: str) -> dict[str, Label]:
    """The labels of a session's files, by path."""
    rows = connection.execute(_OF_SESSION, {"key": session_key})
    return {row.path: Label(row.label) for row in rows}


def label_at(labels: dict[str, Label], path: str) -> Label:
    """The highest label of a file, or of all files below a folder."""
    return join(
        *(
            label
            for known, label in labels.items()
            if EVERYTHING in (known, path) or known == path or known.startswith(f"{path}/")
        )
    )


def raise_label(connection: Connection, session_key: str, path: str, label: Label) -> None:
    """Note that a file holds what is `label`."""
    if label is Label.PUBLIC:
        return
    path = posixpath.normpath(path)
    at = (file_labels.c.session_key == session_key, file_labels.c.path == path)
    known = connection.scalar(select(file_labels.c.label).where(*at))
    if known is None:
        connection.execute(
            insert(file_labels).values(session_key=session_key, path=path, label=label)
        )
    else:
        connection.execute(update(file_labels).where(*at).values(label=join(Label(known), label)))
