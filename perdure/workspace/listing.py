"""Listing one folder, in pages.

Invariant: the order is the order of names, so a page means the same from one call to the next.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from perdure.domain.errors import InvalidArgument
from perdure.workspace.paths import errors_named, opened_folder, readable, relative, resolve
from perdure.workspace.shapes import Entry, EntryType, Listing
from perdure.workspace.text import PARTIAL, json_bytes

#: More names than this at once tell a reader nothing.
PAGE_ENTRIES = 500

#: What an entry takes in JSON beside its name.
_ENTRY_BYTES = 60


def ls(root: Path, path: str, offset: int, *, window_bytes: int) -> Listing:
    """The entries of a folder from number `offset` on; a file is listed as itself.

    Raises:
        InvalidArgument: the offset is negative or past the end.
    """
    place = resolve(root, path)
    if not place and not root.exists():
        # Made with the first write; until then it is an empty folder to whoever asks.
        return _page(place, [], 0, 0)
    with errors_named(path):
        if _is_file(root, place):
            with opened_folder(root, place[:-1]) as folder:
                return _page(place, _entries(folder, [place[-1]], window_bytes), 1, offset)
        with opened_folder(root, place) as folder:
            names = sorted(name for name in os.listdir(folder) if not PARTIAL.fullmatch(name))
            page = names[max(offset, 0) : max(offset, 0) + PAGE_ENTRIES]
            return _page(place, _entries(folder, page, window_bytes), len(names), offset)


def _is_file(root: Path, place: tuple[str, ...]) -> bool:
    if not place:
        return False
    with opened_folder(root, place[:-1]) as folder:
        return not stat.S_ISDIR(os.stat(place[-1], dir_fd=folder, follow_symlinks=False).st_mode)


def _entries(folder: int, names: list[str], room: int) -> list[Entry]:
    entries: list[Entry] = []
    for name in names:
        room -= json_bytes(readable(name)) + _ENTRY_BYTES
        if room < 0 and entries:
            break
        entries.append(_entry(folder, name))
    return entries


def _entry(folder: int, name: str) -> Entry:
    try:
        state = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:  # removed since it was listed, or not ours to look at
        return Entry(name=readable(name), type=EntryType.OTHER)
    for test, kind in (
        (stat.S_ISDIR, EntryType.FOLDER),
        (stat.S_ISLNK, EntryType.LINK),
    ):
        if test(state.st_mode):
            return Entry(name=readable(name), type=kind)
    if stat.S_ISREG(state.st_mode):
        return Entry(name=readable(name), type=EntryType.FILE, size=state.st_size)
    return Entry(name=readable(name), type=EntryType.OTHER)


def _page(place: tuple[str, ...], entries: list[Entry], total: int, offset: int) -> Listing:
    if not 0 <= offset <= total:
        raise InvalidArgument(
            f"offset is {offset}, but the folder has {total} entries.",
            f"Give an offset from 0 to {total}.",
        )
    return Listing(
        path=relative(place),
        entries=tuple(entries),
        total=total,
        truncated=offset + len(entries) < total,
    )
