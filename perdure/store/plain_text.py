"""Text that every engine can store.

Invariant: what is stored does not depend on the engine. PostgreSQL has no text with a NUL in it;
on every engine it becomes U+FFFD, as the halves of surrogate pairs do where text comes in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Dialect

_NUL, _REPLACEMENT = "\x00", "\ufffd"


def storable(text: str) -> str:
    """`text` with every NUL replaced."""
    return text.replace(_NUL, _REPLACEMENT) if _NUL in text else text


class StorableText:
    """What an engine's type of text is mixed with: what is bound passes through `storable`."""

    def bind_processor(self, _dialect: Dialect) -> Callable[[Any], Any]:
        """The function that SQLAlchemy passes each value through."""
        return _bound


def _bound(value: Any) -> Any:
    return storable(value) if isinstance(value, str) else value
