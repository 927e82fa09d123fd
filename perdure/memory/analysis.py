"""From text to the terms that the word index holds.

Invariant: a text and a query pass through the same functions, so whatever of a text can be typed
finds it. On top of `perdure.search`'s words: English stems, accents off Latin letters, pairs of
neighbouring characters in scripts without spaces, and identifiers as a whole.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from datetime import datetime
from functools import cache, lru_cache
from typing import Any

from perdure.search import fold, words
from perdure.search.text import is_lettered

#: Longer ones are no words anybody types; of longer words this much is kept.
_LONGEST = 64
_AROUND = ".,;:!?…()[]{}<>'\"`*_、。，．！？：；「」『』（）【】《》〈〉"
_IDENTIFIER = re.compile(r"[^\W_](?:.*[\W_])|[\W_].*[^\W_]")

#: English words that say little by themselves. Asked for alone, they are looked for all the same.
_STOP_WORDS = """
    a about after again all also am an and any are as at be because been before being between
    both but by can could d did do does doing don down during each few for from further get got had
    has have having he her here hers him his how i if in into is it its itself just ll m me more
    most my myself no nor not now of off on once only or other our ours out over own re s same she
    should so some such t than that the their theirs them then there these they this those through
    to too under until up us ve very was we were what when where which while who whom whose why
    will with would you your yours"""


def terms(text: str) -> list[str]:
    """Every term of a text, in order and as often as it occurs."""
    return list(_terms(fold(text), of_query=False))


def query_terms(texts: Iterable[str]) -> list[str]:
    """The terms to look for, each once: without stop words, unless there is nothing else."""
    found = list(
        dict.fromkeys(term for text in texts for term in _terms(fold(text), of_query=True))
    )
    return [term for term in found if term not in _stop_terms()] or found


def required_terms(text: str, *, whole: bool = True) -> list[str]:
    """Terms that every text has in which the folded words of `text` occur; without the last word
    where only its beginning is known (not `whole`)."""
    found = words(fold(text))
    return [_term(word) for word in (found if whole else found[:-1])]


def date_terms(moment: datetime) -> list[str]:
    """What people call a day by: its month, day and year."""
    return [_term(word) for word in (f"{moment:%B}".lower(), str(moment.day), str(moment.year))]


def _terms(folded: str, *, of_query: bool) -> Iterable[str]:
    for chunk in folded.split():
        found = words(chunk)
        run = 0 if chunk.isascii() else sum(map(_is_continuous, found))
        previous = ""
        for word in found:
            continuous = run > 0 and _is_continuous(word)
            # A pair says more than its parts; a text is found by one character, too.
            if continuous and previous:
                yield previous + word
            if not (continuous and of_query and run > 1):
                yield _term(word)
            previous = word if continuous else ""
        bare = chunk.strip(_AROUND)
        if 1 < len(bare) <= _LONGEST and not run and _IDENTIFIER.search(bare):
            yield bare


def _is_continuous(word: str) -> bool:
    """Whether it is a character of a script without spaces, which is a word by itself."""
    return len(word) == 1 and not word.isascii() and not is_lettered(word)


def _term(word: str) -> str:
    if not word.isascii():
        return _without_accents(word)[:_LONGEST]
    return _stem(word) if 3 < len(word) <= _LONGEST else word[:_LONGEST]


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    # A stemmer keeps the word it works on: one for each thread would do, a fresh one costs less
    # than a lock, and the cache spares most of them.
    return str(_stemmer()().stemWord(word)) if word.isalpha() else word


@cache
def _stop_terms() -> frozenset[str]:
    return frozenset(map(_term, _STOP_WORDS.split()))


@cache
def _stemmer() -> Any:
    from snowballstemmer.english_stemmer import EnglishStemmer

    return EnglishStemmer


@lru_cache(maxsize=65_536)
def _without_accents(word: str) -> str:
    bare = "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))
    # Off Latin letters only: elsewhere a mark may be a letter.
    return _stem(bare) if bare.isascii() and len(bare) > 3 else bare if bare.isascii() else word
