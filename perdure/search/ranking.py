"""How well texts answer a query: BM25 over the texts at hand, and nothing else.

Invariant: a score depends on the query and the texts given, so that what a reader may not see
cannot move it, and engines that find the same texts score them alike. SQLite's own `bm25()` counts
every row of an index, hidden ones too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from perdure.search.matching import Mode, places
from perdure.search.query import Query

#: How fast repetitions of a word cease to count, and how much long texts are held back: the
#: values of Robertson and Zaragoza, "The Probabilistic Relevance Framework" (2009).
SATURATION = 1.2
LENGTH = 0.75


def scores(query: Query, folded: Sequence[str], mode: Mode = Mode.WORDS) -> list[float]:
    """The BM25 score of each folded text, higher being better; 0 where nothing wanted stands.

    The weight of a word is ln(1 + N / n) for N texts of which n have it: never negative, also
    where all of them do, as they do when each is a match.
    """
    lengths = [max(len(text), 1) for text in folded]
    average = sum(lengths) / len(lengths) if lengths else 1.0
    totals = [0.0] * len(folded)
    for leaf in query.wanted:
        counts = [sum(1 for _ in places(leaf, text, mode)) for text in folded]
        having = sum(count > 0 for count in counts)
        weight = math.log(1 + len(folded) / having) if having else 0.0
        for place, count in enumerate(counts):
            held_back = SATURATION * (1 - LENGTH + LENGTH * lengths[place] / average)
            totals[place] += weight * count * (SATURATION + 1) / (count + held_back)
    return totals
