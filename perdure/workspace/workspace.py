"""One session's folder and what may be done in it.

Invariant: every operation stays inside the root, answers within its size limits, and fails only
with a `PerdureError` that names a path of the workspace, never one of the machine.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from perdure.domain.errors import NotFound
from perdure.workspace import listing, search, text
from perdure.workspace.paths import (
    errors_named,
    is_a_folder,
    opened_folder,
    quoted,
    regular_file,
    relative,
    resolve,
)
from perdure.workspace.paths import read_bytes as read_file
from perdure.workspace.shapes import Edited, FileText, Listing, Matches, Written

#: Defaults of [limits] file_bytes and tool_result_bytes.
FILE_BYTES = 10_000_000
RESULT_BYTES = 50_000

_SLUG = re.compile(r"[^a-z0-9]+")
_SLUG_CHARACTERS = 40


class Workspace:
    """The files below `root`, which is made with the first write.

    Args:
        root: the folder. Links in its own path are followed once, here.
        file_bytes: the largest file read or written.
        result_bytes: what a reader takes of one result; answers of read, ls and grep are kept
            below it as JSON, so that they are never cut afterwards.

    All methods block on the file system: call them in a thread.
    """

    def __init__(
        self, root: Path, file_bytes: int = FILE_BYTES, result_bytes: int = RESULT_BYTES
    ) -> None:
        self.root = root.resolve()
        self.file_bytes = file_bytes
        self._window_bytes = result_bytes * 4 // 5

    @classmethod
    def for_session(
        cls,
        home: Path,
        key: str,
        file_bytes: int = FILE_BYTES,
        result_bytes: int = RESULT_BYTES,
    ) -> Workspace:
        """The workspace of the session `key` below the home folder; no two keys share one."""
        slug = _SLUG.sub("-", key.lower()).strip("-")[:_SLUG_CHARACTERS].strip("-")
        # The digest alone tells keys apart, also where a file system folds case.
        digest = hashlib.sha256(key.encode()).hexdigest()[:12]
        name = f"{slug or 'session'}-{digest}"
        return cls(home / "workspaces" / name, file_bytes, result_bytes)

    def resolve(self, path: str) -> Path:
        """The absolute place that `path` names; raises what `paths.resolve` raises."""
        return self.root.joinpath(*resolve(self.root, path))

    def place(self, path: str) -> str:
        """The place that `path` names, relative to the root, links followed; raises what
        `paths.resolve` raises."""
        return relative(resolve(self.root, path))

    def read(
        self,
        path: str,
        start_line: int = 1,
        end_line: int | None = None,
        start_column: int = 1,
    ) -> FileText:
        """Lines of a text file, from 1, both ends included; a window of them if it is long.

        `start_column` (from 1) goes on inside a line that is longer than a window.
        """
        return text.read(
            self.root,
            path,
            start_line,
            end_line,
            start_column,
            file_bytes=self.file_bytes,
            window_bytes=self._window_bytes,
        )

    def write(self, path: str, content: str) -> Written:
        """Make `content` the whole of a file, atomically; folders are made, its mode is kept."""
        return text.write(self.root, path, content, file_bytes=self.file_bytes)

    def read_bytes(self, path: str) -> bytes:
        """The whole of a file, text or not."""
        place = resolve(self.root, path)
        if not place:
            raise is_a_folder(path)
        with errors_named(path), opened_folder(self.root, place[:-1]) as folder:
            return read_file(folder, place[-1], self.file_bytes, path)

    def file_size(self, path: str) -> int:
        """The bytes of a regular file, without reading it; raises as `read_bytes` does, but not
        for its size."""
        place = resolve(self.root, path)
        if not place:
            raise is_a_folder(path)
        with errors_named(path), opened_folder(self.root, place[:-1]) as folder:
            state = regular_file(folder, place[-1], path)
        if state is None:
            raise NotFound(
                f"There is no {quoted(path)} in the workspace.", "Use ls to see what is."
            )
        return state.st_size

    def write_bytes(self, path: str, data: bytes) -> Written:
        """As `write`, with any content."""
        return text.write_bytes(self.root, path, data, file_bytes=self.file_bytes)

    def edit(self, path: str, old: str, new: str) -> Edited:
        """Replace the one occurrence of `old` by `new`, atomically; line ends are kept."""
        return text.edit(self.root, path, old, new, file_bytes=self.file_bytes)

    def ls(self, path: str = ".", offset: int = 0) -> Listing:
        """A folder's entries, sorted, from number `offset` on."""
        return listing.ls(self.root, path, offset, window_bytes=self._window_bytes)

    def grep(self, pattern: str, path: str = ".") -> Matches:
        """The lines matching an RE2 pattern in a file, or in all files below a folder."""
        return search.grep(
            self.root,
            pattern,
            path,
            file_bytes=self.file_bytes,
            window_bytes=self._window_bytes,
        )
