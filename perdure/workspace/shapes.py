"""What the file tools answer: closed, immutable facts, ready to be written as JSON.

Invariant: every path here is relative to the workspace, with forward slashes, and valid text.
"""

from __future__ import annotations

from enum import StrEnum

from perdure.domain.messages import Frozen


class FileText(Frozen):
    """Lines `start_line` to `end_line` (from 1, both included) of a text file.

    `truncated` says that there is more of what was asked for than one answer holds; an empty
    file has `end_line` 0.
    """

    path: str
    content: str
    start_line: int
    end_line: int
    total_lines: int
    truncated: bool


class Written(Frozen):
    """A file that was written: its size now, and whether it is new."""

    path: str
    bytes: int
    created: bool


class Edited(Frozen):
    """A file that was edited: replacements made, the line of the first, the size now."""

    path: str
    replaced: int
    line: int
    bytes: int


class EntryType(StrEnum):
    """What stands behind a name in a folder."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    OTHER = "other"


class Entry(Frozen):
    """One name in a folder; `size` is bytes, for files only."""

    name: str
    type: EntryType
    size: int | None = None


class Listing(Frozen):
    """A page of a folder's entries, sorted by name, of `total`."""

    path: str
    entries: tuple[Entry, ...]
    total: int
    truncated: bool


class Match(Frozen):
    """A line that matched; a long line is shown around its first match."""

    path: str
    line: int
    text: str


class Matches(Frozen):
    """The first matching lines of `total`, in the order of paths and lines.

    `truncated` says that not all matches are shown, or that the search stopped at its time or
    size limit, in which case `total` counts what was searched. Skipped files are counted by
    reason: not UTF-8 text, over the size limit, not readable as a file.
    """

    path: str
    matches: tuple[Match, ...]
    total: int
    truncated: bool
    files: int
    skipped_binary: int
    skipped_oversize: int
    skipped_other: int
