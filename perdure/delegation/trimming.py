"""A long text without its middle.

Invariant: pure and total. The result never has more tokens, as we estimate them, than the limit,
and says what it lacks wherever there is room to say it.
"""

from __future__ import annotations

from collections.abc import Callable

from perdure.context.tokens import estimate_tokens

#: The beginning of a text says most of what it is; the end, how it came out.
HEAD_SHARE = 0.6

#: Characters of a token, generously; where a text has more of them, the search goes on.
_CHARACTERS_PER_TOKEN = 8


def trimmed(text: str, limit: int) -> str:
    """`text` itself if it has at most `limit` tokens, else its head and tail around a marker."""
    tokens = estimate_tokens(text)
    if tokens <= limit:
        return text
    marker = f"\n\n[… about {tokens - limit} of {tokens} tokens left out here …]\n\n"
    room = limit - estimate_tokens(marker)
    while room > 1:
        head = _head(text, int(room * HEAD_SHARE))
        tail = _tail(text[len(head) :], room - int(room * HEAD_SHARE))
        short = head + marker + tail
        # Where pieces meet, a token may be cut in two.
        excess = estimate_tokens(short) - limit
        if excess <= 0:
            return short
        room -= excess
    return _head(text, limit)


def _head(text: str, limit: int) -> str:
    return text[: _longest(lambda length: text[:length], len(text), limit)]


def _tail(text: str, limit: int) -> str:
    size = len(text)
    return text[size - _longest(lambda length: text[size - length :], size, limit) :]


def _longest(piece: Callable[[int], str], size: int, limit: int) -> int:
    """The length of the longest `piece` with at most `limit` tokens, of those that are tried."""
    low, high = 0, max(limit, 0) * _CHARACTERS_PER_TOKEN
    while high < size and estimate_tokens(piece(high)) <= limit:
        low, high = high, 2 * high + 1
    high = min(high, size)
    while low < high:
        middle = (low + high + 1) // 2
        if estimate_tokens(piece(middle)) <= limit:
            low = middle
        else:
            high = middle - 1
    return low
