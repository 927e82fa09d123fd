"""The place of a text that shows why it was found.

Invariant: a snippet is a piece of the text itself, on one line; an ellipsis stands where it was
cut.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import islice

from perdure.search.matching import Mode, places
from perdure.search.query import Query
from perdure.search.text import fold

#: Characters of a snippet: two lines of a terminal.
WIDTH = 200
#: Matches of one word that are looked at for the best place.
_LOOKED_AT = 50
#: ASCII is folded character by character.
_BEYOND_ASCII = re.compile("[^\x00-\x7f]")


def snippet(query: Query, text: str, mode: Mode = Mode.WORDS, width: int = WIDTH) -> str:
    """About `width` characters of `text` around the place with the most of what is wanted; its
    beginning when nothing wanted stands there."""
    folded = fold(text)
    wanted = sorted(
        (place, number)
        for number, leaf in enumerate(query.wanted)
        for place in islice(places(leaf, folded, mode), _LOOKED_AT)
    )
    start = _place(text, folded, _best(wanted, width * 2 // 3)) if wanted else 0
    # Some of what stands before a match belongs to it.
    begin = max(0, min(start - width // 3, len(text) - width))
    end = min(len(text), begin + width)
    if begin:
        begin = _after_space(text, begin, start)
    if end < len(text):
        end = _before_space(text, start, end)
    cut = " ".join(text[begin:end].split())
    return f"{'…' if begin else ''}{cut}{'…' if end < len(text) else ''}"


def _best(wanted: list[tuple[int, int]], width: int) -> int:
    """Where `width` characters hold the most different words; the first such place."""
    best, most, last = wanted[0][0], 0, 0
    for first, (start, _) in enumerate(wanted):
        last = max(last, first)
        while last < len(wanted) and wanted[last][0] < start + width:
            last += 1
        different = len({number for _, number in wanted[first:last]})
        if different > most:
            best, most = start, different
    return best


def _place(text: str, folded: str, place: int) -> int:
    """The place in `text` of a place in its folded form, which may be longer or shorter."""
    if len(text) == len(folded):
        return place
    # So much of the text, and of its folded form, lies behind us.
    behind, length = 0, 0
    for found in _BEYOND_ASCII.finditer(text):
        at = found.start()
        if length + at - behind > place:
            break
        length += at - behind + _folded_length(found[0])
        behind = at + 1
        if length > place:
            return at
    return min(place - length + behind, len(text) - 1)


@lru_cache(maxsize=4_096)
def _folded_length(character: str) -> int:
    # What combines is folded into what it stands on.
    return 0 if unicodedata.combining(character) else len(fold(character))


def _after_space(text: str, begin: int, start: int) -> int:
    space = text.find(" ", begin, min(begin + 20, start))
    return begin if space < 0 else space + 1


def _before_space(text: str, start: int, end: int) -> int:
    space = text.rfind(" ", max(end - 20, start + 1), end)
    return end if space < 0 else space
