"""Conversations made up by chance, the same each time: words as frequent as Zipf's law has them.

Most messages are short, some long; a twelfth is of ideographs, some name a file, some hold an
emoji, a fifth looks like a tool's result.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator

VOCABULARY = 40_000
_IDEOGRAPHS = 3_000
_ONSETS = ["b", "c", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "st", "tr", "sh"]
_VOWELS = ["a", "e", "i", "o", "u", "ai", "ea", "ou"]
_CODAS = ["", "", "", "n", "r", "s", "t", "l", "nd", "st", "ng"]


class Corpus:
    """The words, commonest first, and messages made of them."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        made: dict[str, None] = {}
        while len(made) < VOCABULARY:
            syllables = self._random.choice([1, 2, 2, 3, 3, 4])
            made["".join(self._syllable() for _ in range(syllables))] = None
        self.words = sorted(made, key=lambda word: len(word) + self._random.random() * 6)
        self.ideographs = [
            chr(0x4E00 + code) for code in self._random.sample(range(20_000), _IDEOGRAPHS)
        ]
        self._word_weights = _zipf(VOCABULARY)
        self._ideograph_weights = _zipf(_IDEOGRAPHS)
        self.folders = self._random.sample(self.words, 200)

    def _syllable(self) -> str:
        return "".join(map(self._random.choice, (_ONSETS, _VOWELS, _CODAS)))

    def messages(self, count: int) -> Iterator[str]:
        """`count` texts of 360 bytes on average."""
        for _ in range(count):
            kind = self._random.random()
            yield self._ideographic() if kind < 0.08 else self._prose(is_result=kind > 0.8)

    def _ideographic(self) -> str:
        size = int(self._random.lognormvariate(3.6, 0.6)) + 3
        drawn = self._random.choices(self.ideographs, cum_weights=self._ideograph_weights, k=size)
        clauses = ("".join(drawn[place : place + 9]) for place in range(0, size, 9))
        return "，".join(clauses) + "。"

    def _prose(self, *, is_result: bool) -> str:
        size = int(self._random.lognormvariate(4.6 if is_result else 3.5, 0.8)) + 2
        drawn = self._random.choices(self.words, cum_weights=self._word_weights, k=min(size, 3_000))
        for place in range(11, len(drawn), 12):
            drawn[place] += self._random.choice(".,;:?")
        if self._random.random() < 0.3:
            folder, file = self._random.choices(self.folders, k=2)
            line = self._random.randrange(900)
            drawn[self._random.randrange(len(drawn))] = f"{folder}/{file}.py:{line}"
        text = " ".join(drawn).capitalize()
        if self._random.random() < 0.05:
            text += " " + self._random.choice("👍🎉🚀")
        return json.dumps({"path": drawn[0], "text": text}) if is_result else text


def _zipf(count: int) -> list[float]:
    return list(itertools.accumulate(1 / (rank + 2.7) for rank in range(count)))
