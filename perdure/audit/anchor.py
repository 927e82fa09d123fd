"""The anchor: where the chain ends, kept outside the table, so that a cut-off tail shows.

Invariant: an anchor only ever says what was true of the table when it was written. `settled` is
a head that was committed. `pending` is a head that a transaction was about to commit: the table
ends at one of the two until that transaction has either settled its head or died.

The file is one line of JSON of a fixed length with a MAC over both heads, replaced in place by
one `pwrite` under a lock that all processes share. Killing a process cannot tear a write that
small, and a file that is never renamed can be locked itself. It is not forced to disk: that
would cost each decision milliseconds, and the table is not either (see `perdure.store.audit`).
"""

from __future__ import annotations

import fcntl
import hmac
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from perdure.audit.chain import Head
from perdure.domain.errors import Unavailable

#: Bytes; two heads take less than 300, and a disk writes 512 at once.
_SIZE = 512


class Flaw(StrEnum):
    """Why there is no anchor to go by."""

    MISSING = "missing"
    #: Not an anchor, or not one that was written with this key.
    DAMAGED = "damaged"


class Anchor(NamedTuple):
    """What the file says. `settled` is None from the loss of an anchor until the next commit."""

    settled: Head | None
    pending: Head | None = None


class AnchorFile:
    """The anchor at `path`, authenticated with the chain's key."""

    def __init__(self, path: Path, key: bytes) -> None:
        self.path = path
        # A key of its own: no entry's hash can pass for an anchor's MAC.
        self._key = hmac.digest(key, b"perdure audit anchor", "sha256")

    def read(self) -> Anchor | Flaw:
        """The anchor as it stands.

        Raises:
            Unavailable: when the file is there and cannot be read.
        """
        try:
            with self._opened(os.O_RDONLY, fcntl.LOCK_SH) as descriptor:
                return self._parse(os.pread(descriptor, _SIZE + 1, 0))
        except FileNotFoundError:
            return Flaw.MISSING
        except OSError as error:
            raise self._failed("read", error) from error

    def write(self, anchor: Anchor) -> None:
        """Replace the anchor, whatever it says.

        Raises:
            Unavailable: when it cannot be written.
        """
        try:
            try:
                self._replace(anchor)
            except FileNotFoundError:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._replace(anchor)
        except OSError as error:
            raise self._failed("written", error) from error

    def settle(self, head: Head) -> None:
        """Say that `head` was committed, unless a later transaction has said so already.

        Raises:
            Unavailable: when it cannot be written.
        """
        try:
            with self._opened(os.O_RDWR, fcntl.LOCK_EX) as descriptor:
                found = self._parse(os.pread(descriptor, _SIZE + 1, 0))
                if isinstance(found, Anchor) and found.pending == head:
                    self._put(descriptor, Anchor(head))
        except FileNotFoundError:
            # Removed a moment ago: the next entry tells it.
            return
        except OSError as error:
            raise self._failed("written", error) from error

    def _replace(self, anchor: Anchor) -> None:
        with self._opened(os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX) as descriptor:
            self._put(descriptor, anchor)

    @contextmanager
    def _opened(self, flags: int, lock: int) -> Iterator[int]:
        descriptor = os.open(self.path, flags | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, lock)
            yield descriptor
        finally:
            os.close(descriptor)

    def _put(self, descriptor: int, anchor: Anchor) -> None:
        told = {"settled": anchor.settled, "pending": anchor.pending}
        line = json.dumps({**told, "mac": self._mac(told)})
        os.pwrite(descriptor, line.encode().ljust(_SIZE - 1) + b"\n", 0)

    def _parse(self, content: bytes) -> Anchor | Flaw:
        try:
            told = json.loads(content)
            mac = told.pop("mac")
            if len(content) == _SIZE and hmac.compare_digest(mac, self._mac(told)):
                return Anchor(**{name: head and Head(*head) for name, head in told.items()})
        except (ValueError, TypeError, KeyError, AttributeError):
            pass
        return Flaw.DAMAGED

    def _mac(self, told: dict[str, Any]) -> str:
        return hmac.digest(self._key, json.dumps(told).encode(), "sha256").hex()

    def _failed(self, what: str, error: OSError) -> Unavailable:
        return Unavailable(
            f"The audit anchor {self.path} cannot be {what}: {error.strerror}.",
            "Nothing is allowed that cannot be recorded.",
        )


def unproven_head(path: Path) -> int:
    """The highest sequence number the file speaks of, believed without a key; else 0."""
    try:
        told = json.loads(path.read_bytes())
        return max(int(told[name][0]) for name in ("settled", "pending") if told[name])
    except (OSError, ValueError, TypeError, KeyError, IndexError):
        return 0
