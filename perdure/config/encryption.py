"""The `[temporal.encryption]` table: under which keys Temporal keeps what it is given.

Invariant: it names places of keys, never a key itself, so settings may be shown whole.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from perdure.config.policies import Table, Word

_KEY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
#: Variables with meanings of their own: the settings, and what a local server must not see.
_TAKEN = ("env:PERDURE_", "env:TEMPORAL_")
_VARIABLE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*")


def _key_id(name: str) -> str:
    if not _KEY_ID.fullmatch(name):
        raise ValueError("must be named with 1 to 64 letters, digits, - and _")
    return name


KeyId = Annotated[str, AfterValidator(_key_id)]


def _key_place(value: str) -> str:
    if not Path(value).is_absolute() and not _VARIABLE.fullmatch(value):
        raise ValueError("must be an absolute path of a file, or env:NAME")
    if value.startswith(_TAKEN):
        raise ValueError("must be a variable that is neither PERDURE_… nor TEMPORAL_…")
    return value


#: Where 32 bytes in base64 are to be had: an absolute path, or a variable as `env:NAME`.
KeyPlace = Annotated[str, AfterValidator(_key_place)]


class EncryptionSettings(Table):
    """Keys by their ids. Without any, Temporal keeps payloads in clear."""

    #: Where the key of each id is. Old ones stay while anything is kept under them.
    keys: dict[KeyId, KeyPlace] = Field(default_factory=dict)
    #: The key that new payloads are sealed under; None leaves them clear.
    active: str | None = None
    #: Whether payloads in clear are refused. Not before everything kept in clear has passed.
    refuse_clear: bool = False
    #: Origins of web pages, as in "https://temporal.example.org", that may have payloads decoded
    #: by the gateway: those of the Temporal UI.
    ui_origins: list[Word] = Field(default_factory=list)

    @field_validator("active")
    @classmethod
    def _is_there(cls, value: str | None, info: ValidationInfo) -> str | None:
        keys = info.data.get("keys")
        if value is not None and keys is not None and value not in keys:
            raise ValueError(f"must be one of the keys: {', '.join(keys) or 'there is none'}")
        return value

    @field_validator("refuse_clear")
    @classmethod
    def _can_seal(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("active", "") is None:
            raise ValueError("needs an active key: everything would be refused")
        return value
