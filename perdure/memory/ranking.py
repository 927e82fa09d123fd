"""How well entries answer a query: by words, by meaning, and by what stands beside them.

    text(e)    = Σ_t idf(t) · tf'(t, e)  /  Σ_t idf(t)
    base(e)    = text(e) + MEANING · nearness(e)
    score(e)   = base(e) + LIFT · Σ base(n) over its neighbours n

`tf'` is BM25's saturated count (Robertson and Zaragoza, "The Probabilistic Relevance Framework:
BM25 and Beyond", 2009), so `text` is about the share of the query's information that an entry
has. `nearness` is 0 to 1 within the candidates of the vector search. The lift smooths scores over
entries that were stored together (score regularisation: Diaz, "Regularizing Ad Hoc Retrieval
Scores", 2005): what one says in a conversation is often only understood beside what was said
before it. The mean of all vectors is taken off the query (Mu and Viswanath, "All-but-the-Top",
2018), since vectors of one collection share a direction that says nothing.

Invariant: pure, and made of visible entries alone; `bench/memory.py` has what each part gains.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from perdure.memory.rows import PART

#: BM25 for short texts: a word's repetition says little, and so does a text's length.
SATURATION = 0.9
LENGTH = 0.4
#: The date of an entry counts half of what its words do.
DATED = 0.5
#: Words lead: with them alone more is found than with vectors alone.
MEANING = 0.4
#: A neighbour's share, how many on each side, and how near in time they must be.
LIFT = 0.4
REACH = 2
NEAR = timedelta(hours=1)
#: The share of the mean vector that is taken off, once it is the mean of many.
COMMON = 0.5
_MANY = 100


@dataclass
class Candidate:
    """An entry that may be a result, and the number of the table it lies in."""

    table: int
    id: str
    session: str
    position: int
    created_at: datetime
    terms: str
    base: float = 0.0
    score: float = 0.0

    @property
    def stands(self) -> tuple[int, str, int]:
        """Its place among all entries."""
        return self.table, self.session, self.position

    def beside(self) -> list[tuple[int, str, int]]:
        """The places of its neighbours."""
        steps = (step for step in range(-REACH, REACH + 1) if step)
        return [(self.table, self.session, self.position + step) for step in steps]


def idf(total: int, having: int) -> float:
    """The weight of a term that `having` of `total` entries have; never negative."""
    return math.log(1 + (total - having + 0.5) / (having + 0.5))


def average_length(candidates: Sequence[Candidate]) -> float:
    """The terms of an entry, on average."""
    return sum(map(_length, candidates)) / max(len(candidates), 1)


def score_alone(
    candidates: Sequence[Candidate],
    weight: Mapping[str, float],
    near: Mapping[tuple[int, str], float],
    average: float,
) -> None:
    """Set `base` of each: what its own words and its own meaning are worth.

    `weight` is the idf of each term, `near` the nearness of those that have one, by table and id,
    and `average` the length that is held against none.
    """
    wanted = [(f" {term} ", value) for term, value in weight.items()]
    whole = sum(weight.values())
    for one in candidates:
        own, _, dated = one.terms.partition(PART)
        held_back = SATURATION * (1 - LENGTH + LENGTH * _length(one) / average)
        total = 0.0
        for term, value in wanted:
            count = own.count(term) + DATED * dated.count(term)
            if count:
                total += value * count * (SATURATION + 1) / (count + held_back)
        one.base = MEANING * near.get((one.table, one.id), 0.0) + (total / whole if whole else 0.0)


def _length(one: Candidate) -> int:
    # `rows.spaced` writes two blanks between terms.
    return one.terms.count("  ") + 1


def lift(candidates: Sequence[Candidate]) -> None:
    """Set `score` of each: its own, and a share of its neighbours', as far as they are here."""
    standing = {one.stands: one for one in candidates}
    for one in candidates:
        one.score = one.base
        for place in one.beside():
            other = standing.get(place)
            if other is not None and abs(other.created_at - one.created_at) <= NEAR:
                one.score += LIFT * other.base


def scaled(values: Mapping[tuple[int, str], float]) -> dict[tuple[int, str], float]:
    """Similarities as 0 to 1 within what was found; what is alone is the best there is."""
    low, high = min(values.values(), default=0.0), max(values.values(), default=0.0)
    return {
        key: (value - low) / (high - low) if high > low else 1.0 for key, value in values.items()
    }


def without_common(
    query: Sequence[float], means: Iterable[tuple[int, Sequence[float]]]
) -> list[float]:
    """The query's vector without a share of what all entries have in common.

    `means` are sizes of tables and the means of their vectors.
    """
    known = [(size, mean) for size, mean in means if size]
    total = sum(size for size, _ in known)
    if not total:
        return list(query)
    share = COMMON * total / (total + _MANY)
    common = [sum(size * mean[axis] for size, mean in known) / total for axis in range(len(query))]
    return [value - share * part for value, part in zip(query, common, strict=True)]
