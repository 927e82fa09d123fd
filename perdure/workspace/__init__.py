"""A session's files, path-safe.

Invariant: whatever path comes in, nothing outside the session's folder is read or changed.
"""

from perdure.workspace.results import Kept, keep
from perdure.workspace.shapes import (
    Edited,
    Entry,
    EntryType,
    FileText,
    Listing,
    Match,
    Matches,
    Written,
)
from perdure.workspace.workspace import Workspace

__all__ = [
    "Edited",
    "Entry",
    "EntryType",
    "FileText",
    "Kept",
    "Listing",
    "Match",
    "Matches",
    "Workspace",
    "Written",
    "keep",
]
