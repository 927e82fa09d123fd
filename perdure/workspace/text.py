"""Reading, writing and editing one text file.

Invariant: a reader sees a file before a change or after it, never in between; two changes of one
file never lose one another; and what `write` accepts, `read` gives back unchanged.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress
from io import BytesIO
from itertools import islice
from pathlib import Path

from pydantic_core import to_json

from perdure.domain.errors import Conflict, InvalidArgument, LimitExceeded, NotFound
from perdure.workspace.paths import (
    errors_named,
    is_a_folder,
    locked,
    opened_folder,
    quoted,
    read_bytes,
    regular_file,
    relative,
    resolve,
)
from perdure.workspace.shapes import Edited, FileText, Written

#: More lines than this are not read with attention; the next window is one call away.
WINDOW_LINES = 2_000

#: Room kept inside a window for the note about a line that goes on.
_NOTE_BYTES = 160

#: Half-written files, seen only after a crash or power cut; `ls` and `grep` pass over them.
PARTIAL = re.compile(r"\.perdure-[0-9a-f]{16}\.tmp")


def read(
    root: Path,
    path: str,
    start_line: int,
    end_line: int | None,
    start_column: int,
    *,
    file_bytes: int,
    window_bytes: int,
) -> FileText:
    """Lines of a file: at most `WINDOW_LINES`, and `window_bytes` as written in JSON."""
    place = resolve(root, path)
    data = _load(root, place, path, file_bytes)
    total = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    _check_range(path, start_line, end_line, start_column, total)
    last = total if end_line is None else min(end_line, total)
    shown: list[str] = []
    room = window_bytes
    truncated = False
    for raw in islice(BytesIO(data), start_line - 1, last):
        line = raw.decode()
        if not shown and start_column > 1:
            line = _from_column(line, start_column, path, start_line)
        cost = json_bytes(line)
        if len(shown) == WINDOW_LINES or cost > room:
            truncated = True
            if not shown:
                shown.append(_beginning(line, room, start_line, start_column))
            break
        shown.append(line)
        room -= cost
    return FileText(
        path=relative(place),
        content="".join(shown),
        start_line=start_line,
        end_line=start_line + len(shown) - 1,
        total_lines=total,
        truncated=truncated,
    )


def write(root: Path, path: str, content: str, *, file_bytes: int) -> Written:
    """Make `content` the whole content of a file, at once, with its folders."""
    return write_bytes(root, path, encoded(content, "content"), file_bytes=file_bytes)


def write_bytes(root: Path, path: str, data: bytes, *, file_bytes: int) -> Written:
    """As `write`, with any content."""
    place = _file_place(root, path)
    _check_size(path, len(data), file_bytes)
    with (
        errors_named(path),
        opened_folder(root, place[:-1], create=True) as folder,
        locked(folder, path),
    ):
        before = regular_file(folder, place[-1], path)
        _replace(folder, place[-1], data, before)
    return Written(path=relative(place), bytes=len(data), created=before is None)


def edit(root: Path, path: str, old: str, new: str, *, file_bytes: int) -> Edited:
    """Replace `old`, which must occur exactly once, by `new`.

    In a file whose lines all end in CRLF, line ends in `old` and `new` are taken as CRLF.
    """
    place = _file_place(root, path)
    encoded(old, "old")
    encoded(new, "new")
    if not old or old == new:
        raise InvalidArgument(
            "old is empty." if not old else "old and new are the same text.",
            "Give the text to replace, copied from the file, and what to put in its place.",
        )
    with errors_named(path), opened_folder(root, place[:-1]) as folder, locked(folder, path):
        before = regular_file(folder, place[-1], path)
        text = _decoded(read_bytes(folder, place[-1], file_bytes, path), path)
        if _all_crlf(text):
            old, new = _to_crlf(old), _to_crlf(new)
        at = _only_place(text, old, path)
        data = (text[:at] + new + text[at + len(old) :]).encode()
        _check_size(path, len(data), file_bytes)
        _replace(folder, place[-1], data, before)
    return Edited(
        path=relative(place), replaced=1, line=text.count("\n", 0, at) + 1, bytes=len(data)
    )


def encoded(text: str, argument: str) -> bytes:
    """`text` as the bytes of a text file.

    Raises:
        InvalidArgument: it holds a NUL, which marks a binary file, or half a character.
    """
    if "\0" in text:
        raise InvalidArgument(
            f"{argument} holds a NUL character at position {text.index(chr(0))}.",
            "The file tools write text files only.",
        )
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"{argument} holds half of a surrogate pair at position {error.start}.",
            "Write the whole character.",
        ) from None


def is_text(data: bytes) -> bool:
    """Whether `data` is a text file's: UTF-8 without NUL."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def json_bytes(text: str) -> int:
    """The size of `text` inside a JSON string, in bytes of UTF-8."""
    return len(to_json(text)) - 2


def _load(root: Path, place: tuple[str, ...], path: str, limit: int) -> bytes:
    if not place:
        raise is_a_folder(path)
    with errors_named(path), opened_folder(root, place[:-1]) as folder:
        data = read_bytes(folder, place[-1], limit, path)
    _decoded(data, path)
    return data


def _decoded(data: bytes, path: str) -> str:
    if not is_text(data):
        raise InvalidArgument(
            f"{quoted(path)} is a binary file of {len(data)} bytes, not UTF-8 text.",
            "The file tools read text files only.",
        )
    return data.decode()


def _file_place(root: Path, path: str) -> tuple[str, ...]:
    place = resolve(root, path)
    if not place or path.endswith("/"):
        raise InvalidArgument(f"The path {quoted(path)} names a folder.", "Name a file in it.")
    return place


def _check_size(path: str, size: int, limit: int) -> None:
    if size > limit:
        raise LimitExceeded(
            f"{quoted(path)} would have {size} bytes; the limit file_bytes is {limit}.",
            "Write several smaller files, or raise file_bytes under [limits].",
        )


def _check_range(
    path: str, start_line: int, end_line: int | None, start_column: int, total: int
) -> None:
    if start_line < 1 or start_column < 1:
        raise InvalidArgument(
            f"start_line is {start_line} and start_column {start_column}; both count from 1."
        )
    if end_line is not None and end_line < start_line:
        raise InvalidArgument(
            f"end_line {end_line} is before start_line {start_line}.",
            "Both are included and count from 1.",
        )
    if start_line > max(total, 1):
        raise InvalidArgument(
            f"start_line is {start_line}, but {quoted(path)} has {total} lines.",
            f"Give a start_line from 1 to {max(total, 1)}.",
        )


def _from_column(line: str, start_column: int, path: str, number: int) -> str:
    length = len(line.rstrip("\r\n"))
    if start_column > max(length, 1):
        raise InvalidArgument(
            f"start_column is {start_column}, but line {number} of {quoted(path)} has "
            f"{length} characters.",
            f"Give a start_column from 1 to {max(length, 1)}.",
        )
    return line[start_column - 1 :]


def _beginning(line: str, room: int, number: int, column: int) -> str:
    """As much of one too long line as fits, and a note of how to read on."""
    count = _fitting(line, max(room - _NOTE_BYTES, room // 2))
    return (
        f"{line[:count]}\n[line {number} has {len(line) - count} more characters: read on with "
        f"start_line={number}, start_column={column + count}]\n"
    )


def _fitting(text: str, room: int) -> int:
    """The length of the longest beginning of `text` that takes at most `room` bytes in JSON."""
    low, high = 1, min(len(text), room)
    while low < high:
        middle = (low + high + 1) // 2
        if json_bytes(text[:middle]) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def _all_crlf(text: str) -> bool:
    return "\r\n" in text and text.count("\n") == text.count("\r\n")


def _to_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _only_place(text: str, old: str, path: str) -> int:
    at = text.find(old)
    if at < 0:
        raise NotFound(
            f"old does not occur in {quoted(path)}.",
            "Read the file and copy the text exactly, with its spaces and line ends.",
        )
    again = text.find(old, at + 1)
    if again >= 0:
        lines = [text.count("\n", 0, place) + 1 for place in (at, again)]
        raise Conflict(
            f"old occurs {max(text.count(old), 2)} times in {quoted(path)}, first on the lines "
            f"{lines[0]} and {lines[1]}.",
            "Add neighbouring text to old until it is unique.",
        )
    return at


def _replace(folder: int, name: str, data: bytes, before: os.stat_result | None) -> None:
    partial = f".perdure-{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(partial, flags, 0o666, dir_fd=folder), "wb") as file:
            file.write(data)
            if before is not None:
                os.fchmod(file.fileno(), stat.S_IMODE(before.st_mode))
            file.flush()
            # Without it a power cut may leave the new name with no content.
            os.fsync(file.fileno())
        os.replace(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        # Also on an interrupt: a half-written file must not stay behind.
        with suppress(OSError):
            os.unlink(partial, dir_fd=folder)
        raise
