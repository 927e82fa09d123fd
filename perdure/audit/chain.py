"""Entries and the chain through them.

Invariant: what is hashed is what is stored, byte for byte. Lists and objects are stored as the
canonical JSON text that was hashed, times as text, so no driver and no parser stands between a
row and its hash.

    hash(n) = HMAC-SHA256(key, hash(n-1) ‖ n ‖ body(n))

`hash(0)` is 32 zero bytes, `n` 8 bytes with the highest first, `body` the canonical JSON (sorted
keys, no spaces, ASCII) of every stored column except `seq`, `previous` and `hash`.
"""

from __future__ import annotations

import hmac
import json
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, NamedTuple

from pydantic import Field, JsonValue
from pydantic_core import from_json, to_json

from perdure.domain.labels import Label
from perdure.domain.messages import Frozen

#: `hook` of an entry that the trail writes about itself: it found its past to be broken.
TRAIL = "AUDIT_TRAIL"


class AuditEntry(Frozen):
    """One decision, to be recorded before the effect it allows.

    `decision` is the action taken, `decided_by` the rule or invariant that took it. `arguments`
    must be redacted already: they are stored and exported as they are.
    """

    hook: str
    session_key: str
    turn: int | None = None
    step: int | None = None
    decision: str
    decided_by: str
    rules_evaluated: tuple[JsonValue, ...] = ()
    label_before: Label
    label_after: Label
    reason: str = ""
    arguments: dict[str, JsonValue] = Field({})


class Head(NamedTuple):
    """The end of a chain: its last sequence number, and that entry's hash in hexadecimal."""

    seq: int
    hash: str


#: The head of the empty chain.
GENESIS = Head(0, "0" * 64)


@dataclass(frozen=True, slots=True)
class Record:
    """A stored entry, exactly as it stands in the table; tampered with, it may hold anything."""

    seq: int
    at: str
    hook: str
    session_key: str
    turn: int | None
    step: int | None
    decision: str
    decided_by: str
    rules_evaluated: str
    label_before: str
    label_after: str
    reason: str
    arguments: str
    previous: str
    hash: str

    @property
    def head(self) -> Head:
        """The chain's end, were this its last entry."""
        return Head(self.seq, self.hash)

    def columns(self) -> dict[str, Any]:
        """The row, column by column."""
        return {name: getattr(self, name) for name in self.__slots__}

    def body(self) -> bytes:
        """What is hashed besides the place in the chain.

        Raises:
            TypeError, ValueError: when it holds what no entry ever held.
        """
        return canonical({name: getattr(self, name) for name in _BODY}).encode()

    def exported(self) -> dict[str, Any]:
        """For JSON: lists and objects as such. `from_export` undoes it exactly."""
        return self.columns() | {name: _parsed(getattr(self, name)) for name in _NESTED}

    @classmethod
    def from_export(cls, line: dict[str, Any]) -> Record:
        """The record of which `exported` made `line`.

        Raises:
            KeyError: when a field is missing.
        """
        values = {field.name: line[field.name] for field in fields(cls)}
        for name in _NESTED:
            if not isinstance(values[name], str):
                values[name] = canonical(values[name])
        return cls(**values)


_NESTED = ("rules_evaluated", "arguments")
_BODY = tuple(f.name for f in fields(Record) if f.name not in ("seq", "previous", "hash"))


def canonical(value: Any) -> str:
    """`value` as JSON in its one spelling. Numbers that JSON cannot tell become strings."""
    try:
        return _canonical(value)
    except ValueError:
        return _canonical(from_json(to_json(value, inf_nan_mode="strings")))


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _parsed(text: str) -> JsonValue:
    """The value of a canonical text; any other text as it stands."""
    try:
        value: JsonValue = json.loads(text)
        return text if isinstance(value, str) or canonical(value) != text else value
    except (TypeError, ValueError):
        return text


def link(key: bytes, previous: Head, entry: AuditEntry, at: datetime) -> Record:
    """The record that continues the chain after `previous` with `entry`."""
    seq = previous.seq + 1
    body = {
        "at": timestamp(at),
        "hook": str(entry.hook),
        "session_key": entry.session_key,
        "turn": entry.turn,
        "step": entry.step,
        "decision": str(entry.decision),
        "decided_by": entry.decided_by,
        "rules_evaluated": canonical(entry.rules_evaluated),
        "label_before": str(entry.label_before),
        "label_after": str(entry.label_after),
        "reason": entry.reason,
        "arguments": canonical(entry.arguments),
    }
    hashed = digest(key, previous.hash, seq, canonical(body).encode())
    return Record(seq=seq, **body, previous=previous.hash, hash=hashed)  # type: ignore[arg-type]


def digest(key: bytes, previous: str, seq: int, body: bytes) -> str:
    """The hash of the entry `seq` with `body` after the hash `previous`, in hexadecimal.

    Raises:
        ValueError: when `previous` is no hash.
    """
    linked = bytes.fromhex(previous) + seq.to_bytes(8, "big") + body
    return hmac.digest(key, linked, "sha256").hex()


def timestamp(at: datetime) -> str:
    """A moment as it is stored: UTC, to the microsecond; texts sort as moments do."""
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
