"""Searching the text of a workspace by regular expression.

Invariant: a search ends. RE2 matches in time linear in the text; the text is matched in pieces
of bounded size, and between pieces a clock and a byte count are looked at.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import re2  # type: ignore[import-untyped]

from perdure.domain.errors import InvalidArgument, LimitExceeded, NotFound, PerdureError
from perdure.workspace.paths import errors_named, opened_folder, read_bytes, relative, resolve
from perdure.workspace.shapes import Match, Matches
from perdure.workspace.text import PARTIAL, is_text, json_bytes

#: Matches in one answer; a pattern with more wants to be narrowed, not paged.
MAX_MATCHES = 200

#: Characters of a matching line that are shown.
LINE_CHARACTERS = 400

#: Longer ones are machine-made; RE2's time is linear in the pattern too.
MAX_PATTERN_CHARACTERS = 1_000

#: Seconds and bytes after which a search stops and says so.
SEARCH_SECONDS = 5.0
SEARCH_BYTES = 200_000_000

#: RE2 falls back from its automaton to about 20 µs a byte for the worst patterns that fit in
#: this much memory (measured): a piece of 64 kB then takes about 1.5 s.
_PATTERN_MEMORY = 1 << 20
_PIECE_BYTES = 1 << 16

#: A line longer than a piece is searched in pieces that overlap by this much; a match longer
#: than the overlap can be missed on such a line.
_OVERLAP_BYTES = 1 << 13

#: Deeper folders than a path may name are not entered.
_MAX_DEPTH = 512

_MATCH_BYTES = 40


def grep(root: Path, pattern: str, path: str, *, file_bytes: int, window_bytes: int) -> Matches:
    """The lines that match, in one file or in all files below a folder.

    Symbolic links below the folder are not followed; what they lead to inside the workspace is
    found where it lies.

    Raises:
        InvalidArgument: RE2 does not accept the pattern.
    """
    expression = _compiled(pattern)
    place = resolve(root, path)
    search = _Search(expression, window_bytes, time.monotonic() + SEARCH_SECONDS)
    if place or root.exists():
        with errors_named(path):
            for found in _files(root, place):
                if search.stopped:
                    break
                search.file(root, found, file_bytes, named=found == place)
    return search.answer(place)


def _compiled(pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise LimitExceeded(
            f"The pattern has {len(pattern)} characters; the limit is {MAX_PATTERN_CHARACTERS}.",
            "Search for a shorter one.",
        )
    options = re2.Options()
    options.log_errors = False
    options.never_nl = True
    options.max_mem = _PATTERN_MEMORY
    try:
        # Alone first, so that a flag or a parenthesis cannot lean on the prefix.
        re2.compile(pattern, options)
        return re2.compile(f"(?m){pattern}", options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0] if isinstance(error, re2.error) else "half of a surrogate pair"
        words = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidArgument(
            f"The pattern {pattern[:80]!r} is not accepted: {words}.",
            "Patterns are in RE2 syntax: no look-around, no back-references; "
            "escape literal characters with a backslash.",
        ) from error


def _files(root: Path, place: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Every file at or below `place`, in the order of paths; links are left out."""
    pending = [place]
    while pending:
        here = pending.pop()
        kind = _mode(root, here)
        if kind is None or stat.S_ISLNK(kind):
            if here == place:
                raise NotFound(f"There is no {relative(place)!r} in the workspace.")
        elif not stat.S_ISDIR(kind):
            yield here
        elif len(here) < _MAX_DEPTH:
            pending += ((*here, name) for name in reversed(_names(root, here)))


def _mode(root: Path, place: tuple[str, ...]) -> int | None:
    if not place:
        return root.stat().st_mode
    try:
        with opened_folder(root, place[:-1]) as folder:
            return os.stat(place[-1], dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return None


def _names(root: Path, place: tuple[str, ...]) -> list[str]:
    try:
        with opened_folder(root, place) as folder:
            return sorted(name for name in os.listdir(folder) if not PARTIAL.fullmatch(name))
    except OSError:  # not ours to look into, or removed meanwhile
        return []


@dataclass
class _Search:
    expression: Any
    room: int
    deadline: float
    matches: list[Match] = field(default_factory=list)
    total: int = 0
    files: int = 0
    scanned: int = 0
    binary: int = 0
    oversize: int = 0
    other: int = 0
    full: bool = False

    @property
    def stopped(self) -> bool:
        return time.monotonic() > self.deadline or self.scanned > SEARCH_BYTES

    def file(self, root: Path, place: tuple[str, ...], limit: int, *, named: bool) -> None:
        """Search one file, or count why not; a file asked for by name is refused instead."""
        path = relative(place)
        try:
            with opened_folder(root, place[:-1]) as folder:
                data = read_bytes(folder, place[-1], limit, path)
        except (OSError, PerdureError) as error:
            if named:
                raise
            self.oversize += isinstance(error, LimitExceeded)
            self.other += not isinstance(error, LimitExceeded)
            return
        self.scanned += len(data)
        if not is_text(data):
            self.binary += 1
            return
        self.files += 1
        self._lines(path, data.replace(b"\r\n", b"\n"))

    def _lines(self, path: str, data: bytes) -> None:
        """Count and keep the matching lines of `data`."""
        number, counted = 1, 0
        at = 0
        while at < len(data) and not self.stopped:
            end, following = _piece(data, at)
            found = self.expression.search(data, at, end)
            # A match of nothing behind the last line end is no line.
            if found is None or found.start() >= len(data):
                at = following
                continue
            begin = data.rfind(b"\n", 0, found.start()) + 1
            number += data.count(b"\n", counted, begin)
            counted = begin
            stop = data.find(b"\n", found.start())
            stop = len(data) if stop < 0 else stop
            self._keep(path, number, data[begin:stop], found.start() - begin)
            at = stop + 1

    def _keep(self, path: str, number: int, line: bytes, at: int) -> None:
        self.total += 1
        if self.full:
            return
        text = _excerpt(line, at)
        self.room -= json_bytes(path) + json_bytes(text) + _MATCH_BYTES
        self.full = len(self.matches) == MAX_MATCHES or (self.room < 0 and bool(self.matches))
        if not self.full:
            self.matches.append(Match(path=path, line=number, text=text))

    def answer(self, place: tuple[str, ...]) -> Matches:
        return Matches(
            path=relative(place),
            matches=tuple(self.matches),
            total=self.total,
            truncated=len(self.matches) < self.total or self.stopped,
            files=self.files,
            skipped_binary=self.binary,
            skipped_oversize=self.oversize,
            skipped_other=self.other,
        )


def _piece(data: bytes, at: int) -> tuple[int, int]:
    """Where the piece of `data` that begins at `at` ends, and where the next one begins."""
    if len(data) - at <= _PIECE_BYTES:
        return len(data), len(data)
    end = data.rfind(b"\n", at, at + _PIECE_BYTES) + 1
    if end:
        return end, end
    # Inside a long line: whole characters, and an overlap for matches across the border.
    end = _boundary(data, at + _PIECE_BYTES)
    return end, _boundary(data, end - _OVERLAP_BYTES)


def _boundary(data: bytes, at: int) -> int:
    while data[at] & 0xC0 == 0x80:
        at -= 1
    return at


def _excerpt(line: bytes, at: int) -> str:
    """At most `LINE_CHARACTERS` of a line, around the byte `at`."""
    before = line[:at].decode()
    text = before + line[at:].decode()
    if len(text) <= LINE_CHARACTERS:
        return text
    begin = max(0, min(len(before) - LINE_CHARACTERS // 4, len(text) - LINE_CHARACTERS))
    end = begin + LINE_CHARACTERS
    return ("…" if begin else "") + text[begin:end] + ("…" if end < len(text) else "")
