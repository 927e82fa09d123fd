"""Whole results on disk, where the parent's file tools find them, for as long as they are kept.

Invariant: a file holds an answer byte for byte, and a sweep removes nothing but files that were
written here and are as they were written. What they are is noted in the home folder before each
is written, so a crash leaves a note without a file, never a file without a note.
"""

from __future__ import annotations

import hashlib
import os
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import ValidationError

from perdure.domain.errors import (
    Conflict,
    Denied,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    PerdureError,
    Unavailable,
)
from perdure.domain.messages import Frozen
from perdure.workspace import Workspace
from perdure.workspace.paths import errors_named, locked, opened_folder, read_bytes
from perdure.workspace.results import file_name

#: The folder of the parent's workspace.
FOLDER = "subagent-results"
#: The folder of the home folder that holds the notes.
NOTES = "results"
#: How long a whole result is kept.
RETENTION = timedelta(hours=24)

_NOTE_BYTES = 16_000


class Note(Frozen):
    """What is known of one file: whose workspace it is in, and what was written."""

    run_id: str
    session_key: str
    path: str
    size: int
    sha256: str


class FullResult(Frozen):
    """Where a whole answer lies, and its size; without a `path`, `reason` says why it does not."""

    path: str | None
    bytes: int
    reason: str = ""


def path_of(run_id: str) -> str:
    """The file of a run's whole answer in its parent's workspace. Whoever records the levels of
    files does so for this path before it is written."""
    return f"{FOLDER}/{file_name(run_id)}.txt"


def write(home: Path, session_key: str, run_id: str, text: str) -> FullResult:
    """Write a run's whole answer into the workspace of its parent `session_key`.

    Again, it is the same file. An answer that cannot be written is none the less delivered: this
    raises nothing but what the disk of the home folder does. Blocks: call it in a thread.
    """
    data = text.encode(errors="replace")
    path = path_of(run_id)
    note = Note(
        run_id=run_id,
        session_key=session_key,
        path=path,
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )
    # An answer is in memory and in the store already; a limit would only lose it.
    workspace = Workspace.for_session(home, session_key, file_bytes=max(len(data), 1))
    notes = Workspace(home / NOTES)
    notes.write_bytes(_note_name(run_id), note.model_dump_json().encode())
    try:
        workspace.write_bytes(path, data)
    except PerdureError as error:
        return FullResult(path=None, bytes=len(data), reason=error.message)
    return FullResult(path=path, bytes=len(data))


def sweep(home: Path, older_than: datetime) -> tuple[Note, ...]:
    """Remove the whole results that were written before `older_than`, which has a time zone.

    A file that was changed since is its session's own by now and stays. Returns what was removed.
    Safe to run twice, and beside itself. Blocks: call it in a thread.
    """
    folder = home / NOTES
    if not folder.is_dir():
        return ()
    removed = []
    for name in sorted(os.listdir(folder)):
        note = _expired(folder, name, older_than)
        if note is None:
            continue
        try:
            if _remove(Workspace.for_session(home, note.session_key), note):
                removed.append(note)
        except (Denied, Unavailable):
            continue  # for the next sweep
        (folder / name).unlink(missing_ok=True)
    return tuple(removed)


def _note_name(run_id: str) -> str:
    return f"{file_name(run_id)}.json"


def _expired(folder: Path, name: str, older_than: datetime) -> Note | None:
    """The note in the file `name`, if it is one of ours and its time is over."""
    try:
        if (folder / name).lstat().st_mtime >= older_than.timestamp():
            return None
        with opened_folder(folder, ()) as opened:
            note = Note.model_validate_json(read_bytes(opened, name, _NOTE_BYTES, name))
    except (OSError, ValidationError, PerdureError):
        return None  # swept by another, or not ours
    ours = name == _note_name(note.run_id) and note.path == path_of(note.run_id)
    return note if ours else None


def _remove(workspace: Workspace, note: Note) -> bool:
    """Remove the file of a note, if it is there and still what was written.

    Raises:
        Denied, Unavailable: it cannot be removed now.
    """
    *folders, name = note.path.split("/")
    try:
        with (
            errors_named(note.path),
            # Without following links: the folder is the one that was written to, or it is gone.
            opened_folder(workspace.root, tuple(folders)) as folder,
            locked(folder, note.path),
        ):
            data = read_bytes(folder, name, note.size, note.path)
            if hashlib.sha256(data).hexdigest() != note.sha256:
                return False
            os.unlink(name, dir_fd=folder)
    except (NotFound, InvalidArgument, LimitExceeded, Conflict):
        return False  # gone, or something else has its name
    return True
