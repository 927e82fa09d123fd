"""The beginning and end of a text that is too long.

Invariant: deterministic, and never longer than asked for, in estimated tokens.
"""

from __future__ import annotations

from collections.abc import Callable

from perdure.context.tokens import estimate_tokens

#: The beginning of a text says most of what it is; the end, how it came out.
_HEAD_SHARE = 0.6
#: More characters than this per token are rare; the first guess is too long rather than too short.
_CHARACTERS_PER_TOKEN = 6


def excerpt(text: str, tokens: int, marker: str) -> str | None:
    """`text` itself if it takes at most `tokens`, else its beginning and end around `marker`.

    None where `tokens` have no room for the marker and something beside it.
    """
    if len(text) <= tokens * _CHARACTERS_PER_TOKEN and estimate_tokens(text) <= tokens:
        return text
    # Where two pieces meet, each may count one more than in the whole.
    room = tokens - estimate_tokens(marker) - 4
    if room < 4:
        return None
    head = _longest(text, int(room * _HEAD_SHARE), lambda text, size: text[:size])
    rest = text[len(head) :]
    tail = _longest(rest, room - estimate_tokens(head), lambda text, size: text[-size:])
    return f"{head.rstrip()}\n{marker}\n{tail.lstrip()}"


def _longest(text: str, tokens: int, cut: Callable[[str, int], str]) -> str:
    """A long cut of `text` that takes at most `tokens`; the empty text if none does."""
    size = min(len(text), tokens * _CHARACTERS_PER_TOKEN)
    while size > 0:
        piece = cut(text, size)
        taken = estimate_tokens(piece)
        if taken <= tokens:
            return piece
        size = min(size - 1, size * tokens // taken)
    return ""
