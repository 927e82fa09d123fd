"""What it means that a text matches a query: the reference that every engine is held to.

Invariant: pure. A leaf matches where its text stands in the folded text, white space being one
whatever its kind and length, and where it does not cut a word: what begins or ends with a letter
or digit does so at the edge of a word, a prefix only at its beginning. Scripts written without
spaces have no such edges, nor have symbols. `Mode.PARTS` drops the edges: any part of a word.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

from perdure.search.query import And, Leaf, Node, Not, Or, Phrase, Prefix, Query, Term
from perdure.search.text import LETTER, fold, marks


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


@lru_cache(maxsize=1_024)
def pattern(leaf: Leaf, mode: Mode = Mode.WORDS) -> re.Pattern[str]:
    """The pattern that finds a leaf in folded text."""
    inner = r"\s+".join(map(re.escape, leaf.text.split()))
    if mode is Mode.PARTS:
        return re.compile(inner)
    word = f"{LETTER}|[{marks()}]"
    first, last = (re.match(word, leaf.text[place]) for place in (0, -1))
    before = rf"(?<!{LETTER})(?<![{marks()}])" if first else ""
    after = rf"(?!{word})" if last and not isinstance(leaf, Prefix) else ""
    return re.compile(before + inner + after)


def _holds(node: Node, folded: str, mode: Mode) -> bool:
    match node:
        case And(parts):
            return all(_holds(part, folded, mode) for part in parts)
        case Or(parts):
            return any(_holds(part, folded, mode) for part in parts)
        case Not(part):
            return not _holds(part, folded, mode)
        case Term() | Phrase() | Prefix():
            # Most texts that do not match are told by a plain search, which is faster.
            head = node.text.partition(" ")[0]
            return head in folded and pattern(node, mode).search(folded) is not None
