"""A long text without its middle.

Invariant: pure and total. The result never has more tokens, as we estimate them, than the limit,
and says what it lacks wherever there is room to say it.
"""

from __future__ import annotations

from perdure.context.tokens import estimate_tokens

#: The beginning of a text says most of what it is; the end, how it came out.
HEAD_SHARE = 0.6

#: No character takes less than a quarter of a token, so a longer piece cannot fit.
_MOST_CHARACTERS_PER_TOKEN = 4
#: What rounding may hide when the estimates of three pieces are added.
_ROUNDING = 2


def trimmed(text: str, limit: int) -> str:
    """`text` itself if it has at most `limit` tokens, else its head and tail around a marker."""
    tokens = estimate_tokens(text)
    if tokens <= limit:
        return text
    marker = f"\n\n[… about {tokens - limit} of {tokens} tokens left out here …]\n\n"
    room = limit - estimate_tokens(marker) - _ROUNDING
    if room < 2:
        return _head(text, limit)
    head = _head(text, int(room * HEAD_SHARE))
    # In reverse it is still the same characters, which is all that an estimate looks at.
    tail = _head(text[len(head) :][::-1], room - int(room * HEAD_SHARE))[::-1]
    return head + marker + tail


def _head(text: str, limit: int) -> str:
    """The longest beginning of `text` with at most `limit` tokens."""
    low, high = 0, min(len(text), max(limit, 0) * _MOST_CHARACTERS_PER_TOKEN)
    while low < high:
        middle = (low + high + 1) // 2
        if estimate_tokens(text[:middle]) <= limit:
            low = middle
        else:
            high = middle - 1
    return text[:low]
