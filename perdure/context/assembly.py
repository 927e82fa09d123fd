"""From a session's summaries and raw messages to the messages of one model call.

Invariant: nothing a provider would refuse is assembled. Every tool call is followed at once by
exactly one result, no result stands alone, no message is blank, the first is a user's, and the
newest user message is the real one. The same view gives the same messages, and a view that only
grew gives the same ones with more behind them, as long as all of it fits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from perdure.context.groups import NO_RESULT, Groups
from perdure.context.presentation import PREFACE_TOKENS, preface, presented
from perdure.context.summaries import ContextParameters, Summary
from perdure.domain.messages import Frozen, Message

__all__ = [
    "NO_RESULT",
    "WINDOW_SHARE",
    "Context",
    "View",
    "assemble",
    "assemble_view",
    "history_budget",
]

#: The share of the model's window that an assembled context may take; the rest is the answer's.
WINDOW_SHARE = 0.9
#: The least share of the window that is the history's, however long instructions and tools are.
_LEAST_SHARE = 0.1
_FRESH_TAIL = ContextParameters().fresh_tail


class Context(Frozen):
    """The messages to send, oldest first, what they take, estimated, and whether older ones were
    left out."""

    messages: tuple[Message, ...]
    tokens: int = 0
    cut: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """What a turn may see: the summaries in its context, oldest first, and the exchanges that
    none of them covers. `cut` says that there are older raw messages, not read for lack of room.
    """

    summaries: tuple[Summary, ...]
    groups: Groups
    cut: bool = False

    @classmethod
    def of(cls, summaries: Iterable[Summary], messages: Iterable[Message]) -> View:
        """The view of `summaries`, whose spans are disjoint, over `messages`, oldest first. What
        a summary covers is not raw."""
        ordered = tuple(sorted(summaries, key=lambda summary: summary.first_seq))
        return cls(ordered, Groups(_uncovered(ordered, messages)))

    @property
    def tokens(self) -> int:
        """What all of it takes of a context, estimated."""
        return self.groups.tokens + sum(summary.tokens for summary in self.summaries)


def history_budget(window: int, reserved: int) -> int:
    """The tokens of a model's `window` that are left for the history when `reserved` of them are
    taken by instructions and tools. Always positive: instructions that fill the window are the
    provider's to refuse, and no reason to compact a history to nothing."""
    least = max(1, int(window * _LEAST_SHARE))
    return max(least, int(window * WINDOW_SHARE) - reserved)


def assemble(transcript: Sequence[Message], budget: int) -> Context:
    """The newest part of `transcript` (oldest first) that fits into `budget` tokens.

    The newest user message and the newest exchange are kept whatever they cost. What is left out
    is left out whole: a call never without its results.
    """
    return assemble_view(View((), Groups(transcript)), budget)


def assemble_view(view: View, budget: int, *, fresh_tail: int = _FRESH_TAIL) -> Context:
    """The summaries and messages of `view` that fit into `budget` tokens, in their order.

    The newest user message and the newest exchange are kept whatever they cost. Then come the
    newest `fresh_tail` messages, newest first; then the summaries, newest first; then, if all of
    these fit, older raw messages, newest first. What is left out is left out whole.
    """
    groups = view.groups
    user = groups.last_user
    if user is None:
        return Context(messages=(), cut=bool(len(groups) or view.summaries))
    newest = len(groups) - 1
    room = budget - groups.cost(user, user + 1)
    if newest > user:
        room -= groups.cost(newest)
    tail = groups.tail(fresh_tail)
    first, room = _back(groups, room, tail)
    summaries, room = _newest(view.summaries, room)
    if first == tail and len(summaries) == len(view.summaries):
        first = groups.fitting(room, last=tail)
    first = _start(groups, first, view.summaries, len(view.summaries) - len(summaries))
    cut = view.cut or first > (first > user) or len(summaries) < len(view.summaries)
    # The messages are checked already, and there may be hundreds.
    return Context.model_construct(
        messages=tuple(_merged(groups, first, summaries)),
        tokens=_tokens(groups, first, summaries),
        cut=cut,
    )


def _back(groups: Groups, room: int, tail: int) -> tuple[int, int]:
    """How far back to `tail` the groups fit into `room`, and what is left of it. The newest user
    message and the newest group are paid for."""
    user, newest = groups.last_user or 0, len(groups) - 1
    if newest > user:
        first = groups.fitting(room, user + 1, newest)
        room -= groups.cost(first, newest)
        if first > user + 1:
            return first, room
    first = groups.fitting(room, tail, user)
    return first, room - groups.cost(first, user)


def _newest(summaries: Sequence[Summary], room: int) -> tuple[Sequence[Summary], int]:
    """The newest summaries that fit into `room` with their preface, and what is left of it."""
    left = room - PREFACE_TOKENS
    first = len(summaries)
    while first > 0 and summaries[first - 1].tokens <= left:
        first -= 1
        left -= summaries[first].tokens
    return summaries[first:], left if first < len(summaries) else room


def _start(groups: Groups, first: int, summaries: Sequence[Summary], left_out: int) -> int:
    """The first group from `first` on that a context may begin with, when the oldest `left_out`
    of the summaries are not in it: none before one of these, since an answer would follow an
    answer; and one behind a summary, or a user's."""
    user = groups.last_user or 0
    if first > user:
        return first
    if left_out:
        first = min(user, max(first, groups.after(summaries[left_out - 1].first_seq)))
    kept = summaries[left_out:]
    behind = groups.after(kept[0].first_seq) if kept else len(groups)
    return first if first >= behind else min(groups.user_from(first), behind)


def _merged(groups: Groups, first: int, summaries: Sequence[Summary]) -> Iterator[Message]:
    position = first
    for index, summary in enumerate(summaries):
        behind = groups.after(summary.first_seq)
        if behind > position:
            yield from groups.messages(position, behind)
            position = behind
        if index == 0:
            yield preface(summary)
        yield presented(summary)
    user = groups.last_user or 0
    if first > user:
        yield from groups.messages(user, user + 1)
    yield from groups.messages(position)


def _tokens(groups: Groups, first: int, summaries: Sequence[Summary]) -> int:
    """What `_merged` takes."""
    user = groups.last_user or 0
    raw = groups.cost(first) + (groups.cost(user, user + 1) if first > user else 0)
    return raw + sum(one.tokens for one in summaries) + (PREFACE_TOKENS if summaries else 0)


def _uncovered(summaries: Sequence[Summary], messages: Iterable[Message]) -> Iterator[Message]:
    firsts = [summary.first_seq for summary in summaries]
    for message in messages:
        below = bisect_right(firsts, message.seq) - 1
        if below < 0 or not summaries[below].covers(message.seq):
            yield message
