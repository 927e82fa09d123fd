"""Where the key and the anchor of an audit trail are, and how the key comes to be.

Invariant: a key is made once, whole, and readable by its owner only. Nothing replaces it.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from perdure.domain.errors import Unavailable

KEY_BYTES = 32


class AuditFiles(NamedTuple):
    """The two files of a trail, outside the table they vouch for."""

    key: Path
    anchor: Path

    @classmethod
    def of(cls, home: Path, anchor: str | None = None) -> AuditFiles:
        """Those of a home folder; `anchor` is the place of choice, for instance another disk."""
        return cls(home / "audit" / "key", Path(anchor) if anchor else home / "audit" / "head")


def read_key(path: Path) -> bytes | None:
    """The key, or None when there is none.

    Raises:
        Unavailable: when it cannot be read, or is no key.
    """
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Unavailable(f"The audit key {path} cannot be read: {error.strerror}.") from error
    if len(key) != KEY_BYTES:
        raise Unavailable(
            f"The audit key {path} has {len(key)} bytes instead of {KEY_BYTES}.",
            "Restore it from a backup.",
        )
    return key


def make_key(path: Path, key: bytes | None = None) -> bytes:
    """Put a new key at `path`, or take the one that another process put there first.

    Raises:
        Unavailable: when it cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The name appears with the content: nobody reads a part, and the first one wins.
        descriptor, draft = tempfile.mkstemp(prefix=".key-", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(key or secrets.token_bytes(KEY_BYTES))
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(draft, path)
        finally:
            os.unlink(draft)
    except OSError as error:
        raise Unavailable(f"The audit key {path} cannot be written: {error.strerror}.") from error
    made = read_key(path)
    assert made is not None
    return made
