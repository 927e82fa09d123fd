"""Regular expressions that cannot stall: RE2 alone, in bounded memory.

Invariant: matching takes time linear in the text, whatever the pattern. No pattern of a rule is
ever given to Python's own engine.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

#: What stands in the place of what a rule redacted.
MARK = "[REDACTED]"

#: Longer ones are machine-made; RE2's time is linear in the pattern too.
MAX_PATTERN_CHARACTERS = 1_000

#: RE2 falls back from its automaton to simulating a pattern's program, at a cost that grows with
#: the program: patterns of 4,000 instructions took 30 µs a byte (measured), which would hold a
#: workflow for seconds; the worst found under this bound took 2.
_MAX_INSTRUCTIONS = 2_000

#: Enough that ordinary patterns stay with the automaton, at 0.002 to 0.1 µs a byte.
_PATTERN_MEMORY = 1 << 20


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """`pattern` as RE2 understands it.

    Raises:
        ValueError: saying what RE2 does not accept.
    """
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise ValueError(f"it has {len(pattern)} characters; the limit is {MAX_PATTERN_CHARACTERS}")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_MEMORY
    try:
        expression = re2.compile(pattern, options)
    except re2.error as error:
        words = error.args[0]
        raise ValueError(
            words.decode(errors="replace") if isinstance(words, bytes) else str(words)
        ) from None
    except UnicodeEncodeError:
        raise ValueError("it holds half of a surrogate pair") from None
    if expression.programsize > _MAX_INSTRUCTIONS:
        raise ValueError(
            f"it expands to {expression.programsize} instructions; the limit is "
            f"{_MAX_INSTRUCTIONS}: use smaller repeat counts"
        )
    return expression


def matches(pattern: str, text: str) -> bool:
    """Whether `pattern` matches anywhere in `text`."""
    return compiled(pattern).search(text.encode(errors="replace")) is not None


def redact(pattern: str, text: str) -> str:
    """`text` with every match replaced by `MARK`."""
    raw: bytes = compiled(pattern).sub(lambda _: MARK.encode(), text.encode(errors="replace"))
    # RE2 matches whole characters, so what is left between matches is whole ones too.
    return raw.decode(errors="replace")


def image(text: str) -> bytes:
    """One byte for each character, "?" for those beyond ASCII, so that offsets stay the same."""
    return text.encode("ascii", errors="replace")


@cache
def over_image(pattern: str) -> Any:
    """One of our own expressions, to be used on an `image`."""
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    return re2.compile(pattern.encode(), options)
