"""The file channel: one line of JSON a message, appended to a file of the home folder.

Invariant: a line is whole or absent, however many processes write. Each is written under a lock
and is on the disk before it is reported; a torn end left by a crash never joins the next line.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from datetime import UTC, datetime
from pathlib import Path

from perdure.channels.outcomes import (
    Carrier,
    DeliveryFailed,
    DeliveryRefused,
    DeliveryUnknown,
    Parcel,
    Receipt,
)
from perdure.domain.errors import InvalidArgument, PerdureError
from perdure.workspace.paths import opened_folder, resolve

#: O_NONBLOCK: opening a FIFO must not wait for a reader.
_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def json_lines(home: Path, path: str) -> Carrier:
    """The carrier of `file:PATH`; `path` is relative to `home`, or absolute and inside it.

    Raises:
        InvalidArgument: the path leaves the home folder.
    """
    home = home.resolve()
    if Path(path).is_absolute() and Path(path).is_relative_to(home):
        path = str(Path(path).relative_to(home))
    _place(home, path)

    async def deliver(parcel: Parcel) -> Receipt:
        await asyncio.to_thread(_append, home, path, _line(parcel))
        return Receipt(confirmed=True)

    return deliver


def _place(home: Path, path: str) -> tuple[str, ...]:
    try:
        place = resolve(home, path)
    except PerdureError:
        place = ()
    if not place:
        raise InvalidArgument(
            "The file of a file: channel must lie inside the home folder.",
            "Write a path relative to it, as in file:out/messages.jsonl.",
        )
    return place


def _line(parcel: Parcel) -> bytes:
    line = {
        "delivery_id": parcel.delivery_id,
        "at": datetime.now(UTC).isoformat(),
        "channel": parcel.channel,
        "recipient": parcel.address,
        "text": parcel.text,
    }
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def _append(home: Path, path: str, line: bytes) -> None:
    try:
        place = _place(home, path)
        with opened_folder(home, place[:-1], create=True) as folder:
            file = os.open(place[-1], _FLAGS, 0o600, dir_fd=folder)
            try:
                _write(file, line)
            finally:
                os.close(file)
            os.fsync(folder)
    except InvalidArgument as error:
        raise DeliveryRefused(
            "The channel's file no longer lies inside the home folder."
        ) from error
    except OSError as error:
        raise DeliveryFailed(f"The channel's file cannot be opened: {error.strerror}.") from error


def _write(file: int, line: bytes) -> None:
    # Released when the file is closed. Others hold it for the milliseconds of one line.
    fcntl.flock(file, fcntl.LOCK_EX)
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, 0) != b"{":
        raise DeliveryRefused("The channel's file holds something else than lines of JSON.")
    if size and os.pread(file, 1, size - 1) != b"\n":
        line = b"\n" + line
    try:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(file, rest) :]
    except OSError as error:
        os.ftruncate(file, size)
        raise DeliveryFailed(f"The channel's file cannot be written: {error.strerror}.") from error
    try:
        os.fsync(file)
    except OSError as error:
        raise DeliveryUnknown("The disk did not confirm that it has the message.") from error
