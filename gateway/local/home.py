"""What a running stack leaves in its home folder: a lock, and a file that says where it is.

Invariant: a stack runs exactly as long as its lock is held. The kernel releases the lock when the
holder dies, however it dies, so a file without a held lock is a relic.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from perdure.domain.errors import Conflict

#: `find_stack` holds the lock for an instant to see that it is free: try again before giving up.
_LOCK_TRIES = 20
_LOCK_PAUSE = 0.02


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Pids(_Fact):
    """The processes of a stack that run now. One that is being restarted is absent."""

    #: None on a cluster elsewhere.
    temporal: int | None
    workers: list[int]
    gateway: int | None


class StackInfo(_Fact):
    """Where a running stack can be reached."""

    #: `host:port` of the Temporal frontend.
    temporal: str
    #: The URL of Temporal's web UI; None on a cluster elsewhere.
    ui: str | None
    #: The URL of the HTTP gateway; None when it is not run.
    gateway: str | None
    home: str
    pids: Pids


def run_folder(home: Path) -> Path:
    """Where the lock and the file are."""
    return home / "run"


def stack_file(home: Path) -> Path:
    """The file with the `StackInfo`."""
    return run_folder(home) / "stack.json"


def lock_file(home: Path) -> Path:
    """The file that is locked; it holds the id of the process that has the lock."""
    return run_folder(home) / "up.lock"


class HomeLock:
    """The right to run the stack of one home. Held until released, or until this process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, home: Path) -> Self:
        """Take the lock, making the home folder if absent, readable by its owner only.

        Raises:
            Conflict: when another holds it, with its process id and address.
        """
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        run_folder(home).mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(lock_file(home), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        for _ in range(_LOCK_TRIES):
            if _lock(descriptor):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
                return cls(descriptor)
            time.sleep(_LOCK_PAUSE)
        os.close(descriptor)
        info = read_stack_file(home)
        where = f"process {holder(home)}" + (f", Temporal at {info.temporal}" if info else "")
        raise Conflict(
            f"Perdure is already up on {home}: {where}.",
            "Stop it with `perdure down`, or choose another --home.",
        )

    def release(self) -> None:
        """Give it back. The file stays: removing it would let two hold "the" lock."""
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def holder(home: Path) -> int | None:
    """The id of the process that holds the lock of `home`, or None when nobody does."""
    try:
        descriptor = os.open(lock_file(home), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # Between taking the lock and writing the id, the holder is nameless for an instant.
        for _ in range(_LOCK_TRIES):
            if _lock(descriptor, shared=True):
                return None
            with suppress(ValueError):
                return int(os.pread(descriptor, 32, 0))
            time.sleep(_LOCK_PAUSE)
    finally:
        os.close(descriptor)
    return None


def find_stack(home: Path) -> StackInfo | None:
    """Where the stack of `home` can be reached, or None when none is ready there."""
    info = read_stack_file(home)
    return info if info is not None and holder(home) is not None else None


def read_stack_file(home: Path) -> StackInfo | None:
    """The file as it stands, even a relic; None when absent or not ours."""
    try:
        return StackInfo.model_validate_json(stack_file(home).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def write_stack_file(home: Path, info: StackInfo) -> None:
    """Replace the file; a reader sees the old one or the new one, never a part."""
    target = stack_file(home)
    draft = target.with_suffix(".tmp")
    draft.write_text(info.model_dump_json() + "\n")
    draft.replace(target)


def remove_stack_file(home: Path) -> None:
    """Remove the file; it may be absent."""
    stack_file(home).unlink(missing_ok=True)


def _lock(descriptor: int, *, shared: bool = False) -> bool:
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
