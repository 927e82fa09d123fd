"""Session keys: `tenant:user[~marker~value]…`, parsed in this one place.

Invariant: `str(SessionKey.parse(text)) == text` for every accepted text, so a key has one
spelling and may serve as an identity everywhere (workflow id, database, workspace).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from perdure.domain.errors import InvalidArgument

#: Temporal accepts workflow ids of 1,000 bytes; this leaves room for a prefix and a suffix.
MAX_KEY_BYTES = 512

_RESERVED = re.compile(r"[^\w.+/=,!-]", re.ASCII)
_ESCAPE = re.compile(r"@([0-9A-F]{2})")
_SHAPE = "tenant:user[~marker~value]…, as in default:bob or default:bob~thread~42"


class Marker(StrEnum):
    """What a part of a key after the user says."""

    PEER = "peer"
    CHANNEL = "channel"
    GUILD = "guild"
    THREAD = "thread"
    AGENT = "agent"
    RUN = "run"


class Kind(StrEnum):
    """What a session is, read off its key."""

    DM = "dm"
    GROUP = "group"
    SUB_AGENT = "sub-agent"


def escape(value: str) -> str:
    """`value` with every reserved character as `@XX`, one escape a UTF-8 byte."""
    return _RESERVED.sub(lambda found: "".join(f"@{byte:02X}" for byte in _utf8(found[0])), value)


def unescape(value: str) -> str:
    """The inverse of `escape`."""
    raw = bytearray()
    position = 0
    while position < len(value):
        found = _ESCAPE.match(value, position)
        if found:
            raw.append(int(found[1], 16))
            position = found.end()
        else:
            raw += _utf8(value[position])
            position += 1
    return raw.decode(errors="replace")


def _utf8(text: str) -> bytes:
    # A lone surrogate, as in an argument that is no UTF-8, has no encoding; nor is it in any key.
    return text.encode(errors="replace")


class SessionKey(BaseModel):
    """A parsed key. Values are held unescaped; `str()` gives the one spelling."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant: str
    user: str
    markers: tuple[tuple[Marker, str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> SessionKey:
        """The key that `text` spells.

        Raises:
            InvalidArgument: saying what is wrong with it and what a key looks like.
        """
        if not text:
            raise InvalidArgument("The session key is empty.", f"A key is {_SHAPE}.")
        size = len(text.encode(errors="replace"))
        if size > MAX_KEY_BYTES:
            raise InvalidArgument(
                f"The session key has {size} bytes; the limit is {MAX_KEY_BYTES}.",
                "Use a shorter user or marker value.",
            )
        shown = repr(text if len(text) <= 80 else text[:77] + "…")
        head, *rest = text.split("~")
        tenant, colon, user = head.partition(":")
        if not colon or not tenant or not user:
            raise InvalidArgument(
                f"The session key {shown} does not begin with tenant:user.",
                f"A key is {_SHAPE}.",
            )
        if len(rest) % 2:
            raise InvalidArgument(
                f"The session key {shown} ends in the marker {rest[-1]!r} without a value.",
                f"A key is {_SHAPE}.",
            )
        values = [_value(tenant, shown), _value(user, shown)]
        markers = tuple(
            (_marker(name, shown), _value(value, shown))
            for name, value in zip(rest[::2], rest[1::2], strict=True)
        )
        names = [marker for marker, _ in markers]
        if len(set(names)) != len(names):
            raise InvalidArgument(f"The session key {shown} names a marker twice.")
        return cls(tenant=values[0], user=values[1], markers=markers)

    def __str__(self) -> str:
        parts = [f"{escape(self.tenant)}:{escape(self.user)}"]
        parts += [f"{marker}~{escape(value)}" for marker, value in self.markers]
        return "~".join(parts)

    def get(self, marker: Marker) -> str | None:
        """The value of `marker`, unescaped, or None."""
        return dict(self.markers).get(marker)

    @property
    def kind(self) -> Kind:
        """`sub-agent` with a run, `group` with a guild, else `dm`."""
        if self.get(Marker.RUN) is not None:
            return Kind.SUB_AGENT
        return Kind.GROUP if self.get(Marker.GUILD) is not None else Kind.DM


def _marker(name: str, shown: str) -> Marker:
    try:
        return Marker(name)
    except ValueError:
        raise InvalidArgument(
            f"The session key {shown} has the unknown marker {name!r}.",
            f"Markers are {_words(Marker)}.",
        ) from None


def _value(text: str, shown: str) -> str:
    value = unescape(text)
    if not value or escape(value) != text:
        raise InvalidArgument(
            f"The session key {shown} has a value that is empty or not escaped: {text!r}.",
            f"Write it as {escape(text)!r}." if text else f"A key is {_SHAPE}.",
        )
    return value


def _words(names: Iterable[str]) -> str:
    return ", ".join(str(name) for name in names)
