"""The keys of a process, by their ids.

Invariant: a key is 32 random bytes that a person put in place; it is read once, and stands in no
message, log or error.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from perdure.config.encryption import EncryptionSettings
from perdure.domain.errors import InvalidArgument, Unavailable

_KEY_BYTES = 32
#: What NIST SP 800-38D recommends for GCM. Drawn at random, it bounds a key to 2**32 payloads
#: (section 8.3), which is why keys are rotated.
_NONCE_BYTES = 12


class CannotOpen(Unavailable):
    """What was sealed cannot be opened with the keys at hand; with the right ones it can."""


class Keyring:
    """Seals under the active key, opens under any.

    Raises:
        InvalidArgument: when a key cannot be read, naming its id and its place.
    """

    def __init__(
        self, settings: EncryptionSettings, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._keys = {
            key_id: AESGCM(_material(key_id, place, environ))
            for key_id, place in settings.keys.items()
        }
        self.active = settings.active

    def seal(self, key_id: str, clear: bytes, context: bytes) -> bytes:
        """`clear` under a key, with a nonce of its own before it; `context` is authenticated."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._keys[key_id].encrypt(nonce, clear, context)

    def open(self, key_id: str, sealed: bytes, context: bytes) -> bytes:
        """What was sealed under that key, in that context.

        Raises:
            CannotOpen: without the key, or when it is another than the one that sealed, or when
                anything was altered.
        """
        key = self._keys.get(key_id)
        if key is None:
            known = ", ".join(self._keys) or "none"
            raise CannotOpen(
                f"A payload is encrypted under the key {key_id!r}, which is not here "
                f"(keys here: {known}).",
                f"Put it back as temporal.encryption.keys.{key_id}: what waits then goes on.",
            )
        try:
            return key.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], context)
        except (InvalidTag, ValueError):
            raise CannotOpen(
                f"A payload does not open with the key {key_id!r}.",
                "It was altered, or another key stands under that id.",
            ) from None


def new_key() -> str:
    """A new key, in base64."""
    return base64.b64encode(AESGCM.generate_key(_KEY_BYTES * 8)).decode()


def _material(key_id: str, place: str, environ: Mapping[str, str]) -> bytes:
    if place.startswith("env:"):
        where = f"the variable {place[4:]}"
        text = environ.get(place[4:])
    else:
        where = f"the file {place}"
        text = _read(Path(place))
    if not text:
        raise InvalidArgument(
            f"The encryption key {key_id} is not to be had: {where} cannot be read, or is empty.",
            "Make one with `perdure encryption new-key`.",
        )
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise InvalidArgument(
            f"The encryption key {key_id} in {where} is not {_KEY_BYTES} bytes in base64.",
            "Make one with `perdure encryption new-key`.",
        )
    return key


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return None
