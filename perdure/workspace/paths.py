"""The one place where a path from outside becomes a place in a workspace.

Invariant: nothing is opened except by walking down from the workspace's root, one component at
a time, without following symbolic links. `resolve` follows the links that stay inside first, on
paper; so a link that is swapped in afterwards is refused by the kernel, not raced with.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from perdure.domain.errors import (
    Conflict,
    Denied,
    InvalidArgument,
    LimitExceeded,
    NotFound,
    PerdureError,
    Unavailable,
)

#: What ext4, APFS and NTFS allow for one name.
MAX_NAME_BYTES = 255

#: Far under the 4,096 of Linux, so that the root's own path always fits in front.
MAX_PATH_BYTES = 1_024

#: Linux's own bound on the links of one path.
_MAX_LINKS = 40

#: Seconds to wait for another writer in the same folder; a write takes milliseconds.
_LOCK_PATIENCE = 10.0

_RELATIVE = "Paths are relative to the workspace, as in notes/plan.md."
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
#: O_NONBLOCK: opening a FIFO must not wait for a writer.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def resolve(root: Path, path: str) -> tuple[str, ...]:
    """The components below `root` of the place `path` names, links followed; () is the root.

    `""` and `"."` are the root. What the path names need not exist.

    Raises:
        Denied: the path is absolute, or leaves the workspace by `..` or by a symbolic link.
        InvalidArgument: it is no path: a NUL, half a character, a loop of links.
        LimitExceeded: it is too long, or one of its names is.
    """
    _check_text(path)
    pending = list(reversed(path.split("/")))
    place: list[str] = []
    links = 0
    while pending:
        name = pending.pop()
        if name in ("", "."):
            continue
        if name == "..":
            if not place:
                raise Denied(f"The path {quoted(path)} leaves the workspace.", _RELATIVE)
            place.pop()
            continue
        target = _link_target(root.joinpath(*place, name))
        if target is None:
            place.append(name)
            continue
        links += 1
        if links > _MAX_LINKS:
            raise InvalidArgument(f"The path {quoted(path)} runs in a loop of symbolic links.")
        if target.startswith("/"):
            inside = _below(root, target)
            if inside is None:
                raise Denied(
                    f"The path {quoted(path)} leaves the workspace by the symbolic link {name!r}.",
                    _RELATIVE,
                )
            place.clear()
            target = inside
        pending.extend(reversed(target.split("/")))
    return tuple(place)


def relative(place: tuple[str, ...]) -> str:
    """`place` as text for a reader; bytes of a name that are not UTF-8 are shown as U+FFFD."""
    return readable("/".join(place)) or "."


def readable(name: str) -> str:
    """A name from the file system as valid text."""
    return os.fsencode(name).decode(errors="replace")


def quoted(path: str) -> str:
    """`path` as it may stand in an error message."""
    return repr(path if len(path) <= 120 else path[:119] + "…")


@contextmanager
def errors_named(path: str) -> Iterator[None]:
    """Turn what the operating system refuses about `path` into our errors, by its own words."""
    try:
        yield
    except OSError as error:
        raise _translated(path, error) from error


@contextmanager
def opened_folder(root: Path, place: tuple[str, ...], *, create: bool = False) -> Iterator[int]:
    """A descriptor of the folder `place`, made with its parents if `create`."""
    if create:
        # The root holds one session's files: nobody else's business on a shared machine.
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(root, _FOLDER_FLAGS)
    try:
        for name in place:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=folder)
            inner = os.open(name, _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


@contextmanager
def locked(folder: int, path: str) -> Iterator[None]:
    """Hold the folder against other writers of any thread or process; readers need no lock."""
    give_up = time.monotonic() + _LOCK_PATIENCE
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > give_up:
                raise Unavailable(
                    f"The folder of {quoted(path)} has been locked by another writer for "
                    f"{_LOCK_PATIENCE:.0f} s.",
                    "Try again.",
                ) from None
            time.sleep(0.005)
    try:
        yield
    finally:
        fcntl.flock(folder, fcntl.LOCK_UN)


def regular_file(folder: int, name: str, path: str) -> os.stat_result | None:
    """The state of the file `name` in `folder`, or None when nothing has that name.

    Raises:
        InvalidArgument: something that is not a regular file has it.
    """
    try:
        state = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(state.st_mode):
        raise is_a_folder(path)
    if not stat.S_ISREG(state.st_mode):
        raise InvalidArgument(
            f"{quoted(path)} is neither a file nor a folder but {_special(state.st_mode)}.",
            "Only regular files can be read or written.",
        )
    return state


def read_bytes(folder: int, name: str, limit: int, path: str) -> bytes:
    """The content of the regular file `name` in `folder`, of at most `limit` bytes.

    Raises:
        LimitExceeded: it is larger; size and limit are named.
        InvalidArgument: it is no regular file.
        FileNotFoundError: there is none.
    """
    # Looked at before it is opened: opening a device may already do something.
    regular_file(folder, name, path)
    with os.fdopen(os.open(name, _FILE_FLAGS, dir_fd=folder), "rb") as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode):
            raise Conflict(f"{quoted(path)} was exchanged while it was opened.", "Try again.")
        # One byte more than allowed, for files that grow meanwhile.
        data = file.read(limit + 1) if state.st_size <= limit else b""
    if max(state.st_size, len(data)) > limit:
        raise LimitExceeded(
            f"The file {quoted(path)} has {max(state.st_size, len(data))} bytes; "
            f"the limit file_bytes is {limit}.",
            "Split it, or raise file_bytes under [limits].",
        )
    return data


def is_a_folder(path: str) -> InvalidArgument:
    """The refusal of a folder where a file is wanted."""
    return InvalidArgument(f"{quoted(path)} is a folder.", "Use ls to see what is in it.")


def _check_text(path: str) -> None:
    if "\0" in path:
        raise InvalidArgument(f"The path {quoted(path)} holds a NUL character.", _RELATIVE)
    try:
        size = len(path.encode())
        longest = max(len(name.encode()) for name in path.split("/"))
    except UnicodeEncodeError:
        raise InvalidArgument(
            f"The path {quoted(path)} holds half of a surrogate pair, which is not text.",
            _RELATIVE,
        ) from None
    if path.startswith("/"):
        raise Denied(f"The path {quoted(path)} is absolute.", _RELATIVE)
    if size > MAX_PATH_BYTES or longest > MAX_NAME_BYTES:
        raise LimitExceeded(
            f"The path {quoted(path)} has {size} bytes, its longest name {longest}; the limits "
            f"are {MAX_PATH_BYTES} and {MAX_NAME_BYTES}.",
            "Use shorter names.",
        )


def _link_target(place: Path) -> str | None:
    try:
        return os.readlink(place)
    except OSError:
        # No link, nothing there, or not allowed to look: opening it will tell which.
        return None


def _below(root: Path, target: str) -> str | None:
    # With ".." in it, what an absolute target means depends on links outside the workspace.
    if ".." in target.split("/"):
        return None
    try:
        return str(Path(target).relative_to(root))
    except ValueError:
        return None


def _special(mode: int) -> str:
    for test, name in (
        (stat.S_ISLNK, "a symbolic link"),
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
    ):
        if test(mode):
            return name
    return "a device"


def _translated(path: str, error: OSError) -> PerdureError:
    shown = quoted(path)
    match error.errno:
        case errno.ENOENT:
            return NotFound(f"There is no {shown} in the workspace.", "Use ls to see what is.")
        case errno.ENOTDIR:
            return InvalidArgument(
                f"A part of the path {shown} is not a folder.", "Use ls to see what is there."
            )
        case errno.EISDIR:
            return is_a_folder(path)
        case errno.ENAMETOOLONG:
            return LimitExceeded(f"The path {shown} is too long for this file system.")
        case errno.ELOOP:
            return Denied(f"The path {shown} was exchanged for a symbolic link.", "Try again.")
        case errno.EACCES | errno.EPERM | errno.EROFS:
            return Denied(f"The operating system denies access to {shown}: {error.strerror}.")
        case _:
            return Unavailable(f"{shown} cannot be used now: {error.strerror or error}.")
