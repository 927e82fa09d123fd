"""What it means that a text matches a query: the reference that every engine is held to.

Invariant: pure. A leaf matches where its text stands in the folded text, white space being one
whatever its kind and length, and where it does not cut a word: what begins or ends with a letter
or digit does so at the edge of a word, a prefix only at its beginning. Scripts written without
spaces have no such edges, nor have symbols. `Mode.PARTS` drops the edges of what was typed without
quotes or a star: any part of a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache

from perdure.search.query import And, Leaf, Node, Not, Or, Phrase, Prefix, Query, Term
from perdure.search.text import fold, is_lettered


class Mode(StrEnum):
    """How a leaf is looked for."""

    #: As whole words.
    WORDS = "words"
    #: Anywhere, also inside a word.
    PARTS = "parts"


def matches(query: Query, text: str, mode: Mode = Mode.WORDS) -> bool:
    """Whether `text` matches `query`."""
    return matches_folded(query, fold(text), mode)


def matches_folded(query: Query, folded: str, mode: Mode = Mode.WORDS) -> bool:
    """Whether a text that is folded already matches `query`."""
    return _holds(query.root, folded, mode)


def modes(query: Query) -> tuple[Mode, ...]:
    """The ways of looking for a query that differ: parts of words are nothing else where no word
    that is wanted begins or ends with a letter or digit."""
    for leaf in query.wanted:
        if isinstance(leaf, Term) and any(_edges(leaf)[1:]):
            return (Mode.WORDS, Mode.PARTS)
    return (Mode.WORDS,)


def places(leaf: Leaf, folded: str, mode: Mode = Mode.WORDS) -> Iterator[int]:
    """Where a leaf stands in folded text, from the left, not overlapping."""
    literal, starts, ends = _edges(leaf)
    if mode is Mode.PARTS and isinstance(leaf, Term):
        starts = ends = False
    found = literal.search(folded)
    while found is not None:
        begin, end = found.span()
        if (starts and begin and is_lettered(folded[begin - 1])) or (
            ends and end < len(folded) and is_lettered(folded[end])
        ):
            # The next one may begin inside this one.
            found = literal.search(folded, begin + 1)
            continue
        yield begin
        found = literal.search(folded, end)


@lru_cache(maxsize=1_024)
def _edges(leaf: Leaf) -> tuple[re.Pattern[str], bool, bool]:
    """A leaf as plain text, and whether it must not be continued to the left and to the right."""
    literal = re.compile(r"\s+".join(map(re.escape, leaf.text.split())))
    ends = is_lettered(leaf.text[-1]) and not isinstance(leaf, Prefix)
    return literal, is_lettered(leaf.text[0]), ends


def _holds(node: Node, folded: str, mode: Mode) -> bool:
    match node:
        case And(parts):
            return all(_holds(part, folded, mode) for part in parts)
        case Or(parts):
            return any(_holds(part, folded, mode) for part in parts)
        case Not(part):
            return not _holds(part, folded, mode)
        case Term() | Phrase() | Prefix():
            return next(places(node, folded, mode), None) is not None
