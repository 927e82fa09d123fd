"""Sealing of bytes under named keys: AES-256-GCM, knowing nothing of Temporal.

Invariant: what was sealed is opened whole and unaltered, or not at all, and the refusal names the
key that is missing.
"""

from perdure.encryption.keyring import CannotOpen, Keyring, new_key

__all__ = ["CannotOpen", "Keyring", "new_key"]
