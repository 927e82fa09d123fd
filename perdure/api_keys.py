"""API keys as text: made, read, hashed and checked. `pdr_ID_SECRET`

Invariant: the secret of a key is in its text alone, which is shown once; what is kept of it cannot
be turned back. A key that there never was takes as long to check as one with a wrong secret.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from functools import cache
from typing import NamedTuple

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from argon2.low_level import Type

#: argon2id with 19 MiB, 2 passes, 1 lane: the first choice of OWASP's password storage cheat
#: sheet. Secrets have 256 random bits, so this guards a stolen table, not a guessable word.
_HASHER = PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1, type=Type.ID)
_KEY = re.compile(r"pdr_([0-9a-z]{12})_([A-Za-z0-9_-]{43})")
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


class KeyText(NamedTuple):
    """The parts of a key. `id` is public and names it; `secret` proves it."""

    id: str
    secret: str

    def __str__(self) -> str:
        return f"pdr_{self.id}_{self.secret}"

    def __repr__(self) -> str:
        # It must not get into a log by way of an object that holds it.
        return f"KeyText(id={self.id!r}, secret=…)"


def new_key(request: str | None = None) -> KeyText:
    """A key with 256 random bits of secret, and 62 of id; with a `request`, the id is that of the
    request, so that asking again does not make another key."""
    number = int.from_bytes(hashlib.sha256(request.encode()).digest()) if request else 0
    drawn = number or secrets.randbits(256)
    letters = [_LETTERS[drawn // len(_LETTERS) ** place % len(_LETTERS)] for place in range(12)]
    return KeyText("".join(letters), secrets.token_urlsafe(32))


def read_key(text: str) -> KeyText | None:
    """The parts of a key's text; None when it is none."""
    found = _KEY.fullmatch(text)
    return None if found is None else KeyText(found[1], found[2])


def hash_of(key: KeyText) -> str:
    """What is kept of a key. It takes tens of milliseconds: not for an event loop."""
    return _HASHER.hash(key.secret)


def is_of(key: KeyText, kept: str | None) -> bool:
    """Whether a key is the one of which this is kept; None is of no key, and takes as long. It
    takes tens of milliseconds: not for an event loop."""
    try:
        return _HASHER.verify(kept or nobody(), key.secret) and kept is not None
    except (VerificationError, InvalidHashError):
        return False


@cache
def nobody() -> str:
    """What would be kept of a key that nobody has. The first time takes as long as `hash_of`."""
    return _HASHER.hash(secrets.token_urlsafe(32))
