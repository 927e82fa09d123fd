"""What to summarise next, if anything.

Invariant: nothing is planned for a context that is at or under its threshold, and nothing that was
tried in vain. Every pass makes the context smaller or is never planned again, so a sweep ends. A
pass never touches the fresh tail and never takes a call from its result.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise

from perdure.context.items import Item, joints, tail_start
from perdure.context.presentation import SUMMARY_OVERHEAD
from perdure.context.summaries import ContextParameters, summary_id
from perdure.domain.messages import Frozen

#: Less cannot be made smaller: a summary has its own tag and must say something.
LEAST_SOURCE = 2 * SUMMARY_OVERHEAD + 20
#: From this share of a full chunk on a leaf is worth its call. Smaller ones cost more in the end:
#: their summaries are long for what they cover, and all of these are read again.
_FULL_SHARE = 0.6
#: How far a summary may exceed its target. Models miss lengths, and sizes must stay bounded.
_OVERSHOOT = 1.5
#: The share of a source that its summary may have as its target.
_TARGET_SHARE = 0.5


class Rest(StrEnum):
    """Why there is nothing to do: the context fits, or nothing that is left would help."""

    FITS = "fits"
    EXHAUSTED = "exhausted"


class Pass(Frozen):
    """One summary to be made: of messages at depth 0, else of summaries.

    `sources` are their ids in order, `messages` the number of messages under them, and `target`
    the length asked for, in tokens. `id` is the summary's.
    """

    id: str
    depth: int
    sources: tuple[str, ...]
    first_seq: int
    last_seq: int
    messages: int
    source_tokens: int
    target: int

    @property
    def most_tokens(self) -> int:
        """The most that the summary may take of a context, presented; less than its source."""
        return min(self.source_tokens - 1, math.ceil(self.target * _OVERSHOOT) + SUMMARY_OVERHEAD)


def threshold_tokens(budget: int, parameters: ContextParameters) -> int:
    """What a context must exceed to be compacted; at least 1, whatever the budget."""
    return max(1, int(budget * parameters.threshold))


def plan(
    items: Sequence[Item],
    budget: int,
    parameters: ContextParameters,
    *,
    session_key: str,
    epoch: int,
    exhausted: Collection[str] = (),
) -> Pass | Rest:
    """The next pass over a context of `items`, in order, or why there is none.

    `budget` is the history's, in tokens; `parameters` are fitted to it. `exhausted` are ids of
    passes that were tried and gained nothing.

    The oldest leaf comes first, as long as it is about full; then the shallowest depth with enough
    neighbours; then a smaller leaf; then fewer neighbours. If the tail alone is over the threshold,
    only the first two are done, which are worth it in any case: the goal is out of reach, and the
    rest would be tried again in every turn.
    """
    parameters = parameters.fitted(budget)
    limit = threshold_tokens(budget, parameters)
    if sum(item.tokens for item in items) <= limit:
        return Rest.FITS
    share = int(budget * parameters.fresh_tail_share)
    start = tail_start(items, parameters.fresh_tail, share)
    reachable = sum(item.tokens for item in items[start:]) <= limit
    for depth, sources in _candidates(items[:start], parameters, reachable):
        made = _pass(depth, sources, parameters, session_key, epoch)
        if made.id not in exhausted:
            return made
    return Rest.EXHAUSTED


def _candidates(
    items: Sequence[Item], parameters: ContextParameters, reachable: bool
) -> Iterator[tuple[int, Sequence[Item]]]:
    """Depths and sources in the order in which they are to be summarised."""
    chunks = list(_chunks(items, parameters.leaf_chunk_tokens))
    runs = _runs(items)
    yield from ((0, chunk) for chunk, full in chunks if full)
    yield from _condensable(runs, parameters, least=None)
    if reachable:
        yield from ((0, chunk) for chunk, full in chunks if not full)
        yield from _condensable(runs, parameters, least=parameters.pressure_fan_in)


def _chunks(items: Sequence[Item], limit: int) -> Iterator[tuple[Sequence[Item], bool]]:
    """The raw items in pieces of at most `limit` tokens, oldest first, and whether each is about
    as large as it can become.

    A piece has more if it is one exchange, or if its beginning alone is too little for a summary.
    What is too little is left out: more may come, or it stays as it is.
    """
    for begin, end in _raw_stretches(items):
        run = items[begin:end]
        closed = end < len(items)
        places = joints(run)
        first, tokens = 0, 0
        for left, right in pairwise(places):
            cost = sum(item.tokens for item in run[left:right])
            if tokens >= LEAST_SOURCE and tokens + cost > limit:
                yield run[first:left], True
                first, tokens = left, 0
            tokens += cost
        if tokens >= LEAST_SOURCE:
            yield run[first:], closed or tokens >= limit * _FULL_SHARE


def _raw_stretches(items: Sequence[Item]) -> Iterator[tuple[int, int]]:
    begin = 0
    for index, item in enumerate(items):
        if not item.is_raw:
            if begin < index:
                yield begin, index
            begin = index + 1
    if begin < len(items):
        yield begin, len(items)


def _runs(items: Sequence[Item]) -> list[Sequence[Item]]:
    """Summaries of one depth that stand side by side, shallowest first, then oldest first."""
    runs: list[Sequence[Item]] = []
    begin = 0
    for index in range(1, len(items) + 1):
        if index == len(items) or items[index].depth != items[begin].depth:
            if not items[begin].is_raw:
                runs.append(items[begin:index])
            begin = index
    return sorted(runs, key=lambda run: run[0].depth or 0)


def _condensable(
    runs: Sequence[Sequence[Item]], parameters: ContextParameters, least: int | None
) -> Iterator[tuple[int, Sequence[Item]]]:
    """The oldest neighbours of each run, `fan_in` of them, or `least` where there are no more.

    What was tried in vain is widened before it is narrowed; the deepest nodes become one of their
    own depth.
    """
    for run in runs:
        depth = run[0].depth or 0
        fan_in = parameters.condensed_fan_in if depth else parameters.leaf_fan_in
        counts = [*range(fan_in, len(run) + 1)]
        if least is not None:
            counts += range(min(len(run), fan_in - 1), least - 1, -1)
        for count in counts:
            sources = run[:count]
            if sum(item.tokens for item in sources) >= LEAST_SOURCE:
                yield min(depth + 1, parameters.max_depth), sources


def _pass(
    depth: int,
    sources: Sequence[Item],
    parameters: ContextParameters,
    session_key: str,
    epoch: int,
) -> Pass:
    ids = tuple(item.id for item in sources)
    tokens = sum(item.tokens for item in sources)
    if depth == 0:
        wanted = int(tokens * parameters.leaf_target_ratio)
        target = max(parameters.leaf_target_min, min(wanted, parameters.leaf_target_max))
    else:
        target = parameters.condensed_target
    return Pass(
        id=summary_id(session_key, epoch, depth, ids),
        depth=depth,
        sources=ids,
        first_seq=sources[0].first_seq,
        last_seq=sources[-1].last_seq,
        messages=sum(item.messages for item in sources),
        source_tokens=tokens,
        target=max(1, min(target, int(tokens * _TARGET_SHARE) - SUMMARY_OVERHEAD // 2)),
    )
