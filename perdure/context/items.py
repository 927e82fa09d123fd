"""What stands in a context, as planning sees it: spans, sizes and pairs, and no text.

Invariant: a place between two items is a joint only if no call is on one side of it and its result
on the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.context.summaries import Summary
from perdure.domain.messages import Message, Role


@dataclass(frozen=True, slots=True)
class Item:
    """One raw message or one summary of a context.

    `depth` is None for a message. `messages` is how many it stands for. `calls` are the ids of the
    tool calls it makes, `answers` the id of the call whose result it is.
    """

    id: str
    first_seq: int
    last_seq: int
    tokens: int
    depth: int | None = None
    messages: int = 1
    role: Role | None = None
    turn: int = 0
    step: int = 0
    calls: tuple[str, ...] = ()
    answers: str | None = None

    @property
    def is_raw(self) -> bool:
        """Whether it is a message."""
        return self.depth is None

    @classmethod
    def of_message(cls, message: Message) -> Item:
        """The item of a raw message."""
        return cls(
            id=message.id,
            first_seq=message.seq,
            last_seq=message.seq,
            tokens=message.tokens,
            role=message.role,
            turn=message.turn,
            step=message.step,
            calls=tuple(call.id for call in message.tool_calls),
            answers=message.tool_call_id if message.role is Role.TOOL else None,
        )

    @classmethod
    def of_summary(cls, summary: Summary) -> Item:
        """The item of a summary."""
        return cls(
            id=summary.id,
            first_seq=summary.first_seq,
            last_seq=summary.last_seq,
            tokens=summary.tokens,
            depth=summary.depth,
            messages=summary.messages,
        )


def joints(items: Sequence[Item]) -> list[int]:
    """Where `items` may be cut, both ends included: never between a call and its result."""
    reach: dict[tuple[int, int, str], list[int]] = {}
    for index, item in enumerate(items):
        for call_id in (*item.calls, *([] if item.answers is None else [item.answers])):
            reach.setdefault((item.turn, item.step, call_id), []).append(index)
    # How many pairs begin, less how many end, at each place.
    change = [0] * (len(items) + 1)
    for found in reach.values():
        change[found[0] + 1] += 1
        change[found[-1] + 1] -= 1
    found_joints, open_pairs = [], 0
    for place in range(len(items) + 1):
        open_pairs += change[place]
        if open_pairs == 0:
            found_joints.append(place)
    return found_joints


def tail_start(items: Sequence[Item], count: int, most_tokens: int) -> int:
    """Where the fresh tail begins: the newest `count` raw messages, as far as they take at most
    `most_tokens`; whatever they take, the newest user message and all behind it, and a call of the
    newest turn whose result is still to come. Never inside an exchange."""
    behind = max((index + 1 for index, item in enumerate(items) if not item.is_raw), default=0)
    raw = items[behind:]
    user = max((i for i, item in enumerate(raw) if item.role is Role.USER), default=len(raw))
    start, tokens = len(raw), 0
    while start > 0:
        tokens += raw[start - 1].tokens
        if start <= user and (len(raw) - start >= count or tokens > most_tokens):
            break
        start -= 1
    start = min(start, _first_unanswered(raw))
    return behind + max(joint for joint in joints(raw) if joint <= start)


def _first_unanswered(raw: Sequence[Item]) -> int:
    if not raw:
        return 0
    turn = raw[-1].turn
    answered = {(i.step, i.answers) for i in raw if i.turn == turn and i.answers is not None}
    for index, item in enumerate(raw):
        if item.turn == turn and any((item.step, call) not in answered for call in item.calls):
            return index
    return len(raw)
