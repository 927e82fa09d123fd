"""Exchanges of a transcript that are kept or left whole: a user message, or an answer with the
results of its calls.

Invariant: nothing a provider would refuse. Directly behind a call stands exactly one result, a real
one where there is one; no result stands alone, no message is blank. Messages may come in any
order: a result is taken up whenever it arrives, also before its call, and only what is new is
paired.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from perdure.context.tokens import message_tokens
from perdure.domain.messages import Message, Role

#: What stands for a result that was never recorded: its process died, or the turn was stopped.
NO_RESULT = '{"error": {"code": "unavailable", "message": "No result was recorded."}}'
_NO_RESULT_TOKENS = message_tokens(NO_RESULT)

#: Providers repeat call ids between turns and steps: only inside one step they name a call.
_Key = tuple[int, int, str]


@dataclass(slots=True)
class _Slot:
    """Where a call's result stands, or a placeholder until it has one.

    `position` and `group` count from the beginning, what was dropped included. `place` is the seq
    that the store keeps free for the result. `real` tells whether a recorded result stands there.
    """

    position: int
    group: int
    head_seq: int
    place: int
    taken: bool = False
    real: bool = False


class Groups:
    """The exchanges of a stretch of transcript, oldest first, with running sums of their cost.

    To append a message costs the same however many there are; so does finding the newest groups
    that fit a budget, but for a logarithm. Indexes count from the oldest group kept.
    """

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._flat: list[Message] = []
        self._starts: list[int] = []
        self._sums: list[int] = []
        self._seqs: list[int] = []
        self._users: list[int] = []
        self._slots: dict[_Key, list[_Slot]] = {}
        self._early: dict[_Key, list[Message]] = {}
        self._dropped_messages = 0
        self._dropped_groups = 0
        self._dropped_tokens = 0
        #: The seq of the newest message seen, 0 before the first.
        self.last_seq = 0
        self.append(messages)

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def tokens(self) -> int:
        """What all of it takes of a context, estimated."""
        return self.cost(0)

    def append(self, messages: Iterable[Message]) -> None:
        """Take up messages that are newer than those already here, and results of any age."""
        for message in messages:
            self.last_seq = max(self.last_seq, message.seq)
            if message.role is Role.TOOL:
                self._take(message)
            elif message.tool_calls or (message.text and not message.text.isspace()):
                self._open(message)

    def cost(self, first: int, last: int | None = None) -> int:
        """The tokens of the groups from `first` up to but without `last`."""
        end = len(self) if last is None else last
        return self._sum(end) - self._sum(first)

    def messages(self, first: int, last: int | None = None) -> list[Message]:
        """The messages of the groups from `first` up to but without `last`, placeholders for
        results that were never recorded included."""
        end = len(self) if last is None else last
        return self._flat[self._start(first) : self._start(end)]

    def fitting(self, room: int, first: int = 0, last: int | None = None) -> int:
        """Where the longest run of groups begins that ends before `last`, reaches back no further
        than `first`, and costs at most `room`; `last` itself if not even one fits."""
        end = len(self) if last is None else last
        least = self._sum(end) - room
        # The first group whose beginning is not before `least` on the scale of the running sums.
        begin = bisect_left(self._sums, least) + 1 if least > self._dropped_tokens else 0
        return min(max(begin, first), end)

    def after(self, seq: int) -> int:
        """The first group that begins behind the message `seq`."""
        return bisect_right(self._seqs, seq)

    @property
    def last_user(self) -> int | None:
        """The group of the newest user message."""
        return self._users[-1] - self._dropped_groups if self._users else None

    def user_from(self, group: int) -> int:
        """The first group from `group` on that is a user message; one past the end if none is."""
        found = bisect_left(self._users, group + self._dropped_groups)
        return self._users[found] - self._dropped_groups if found < len(self._users) else len(self)

    def tail(self, count: int) -> int:
        """Where the newest `count` messages begin, or the newest user message if that is older;
        never inside a group."""
        last_user = self.last_user
        position = self._dropped_messages + max(0, len(self._flat) - count)
        begin = max(0, bisect_right(self._starts, position) - 1)
        return begin if last_user is None else min(begin, last_user)

    def trim(self, budget: int, turn: int) -> bool:
        """Let go of the oldest groups that neither `budget` nor the turn `turn` needs; whether
        there were any. One group more than the budget needs is kept, and the newest user message
        in any case."""
        keep = max(0, self.fitting(budget) - 1)
        keep = keep if self.last_user is None else min(keep, self.last_user)
        drop = 0
        while drop < keep and self._flat[self._start(drop)].turn < turn:
            drop += 1
        self._drop(drop)
        return drop > 0

    def _sum(self, group: int) -> int:
        return self._sums[group - 1] if group > 0 else self._dropped_tokens

    def _start(self, group: int) -> int:
        if group < len(self._starts):
            return self._starts[group] - self._dropped_messages
        return len(self._flat)

    def _open(self, head: Message) -> None:
        """Begin a group, with results that came before it and placeholders for the rest."""
        group = self._dropped_groups + len(self)
        before = self._sum(len(self))
        self._starts.append(self._dropped_messages + len(self._flat))
        self._seqs.append(head.seq)
        if head.role is Role.USER:
            self._users.append(group)
        self._flat.append(head)
        cost = head.tokens
        for index, call in enumerate(head.tool_calls):
            key = (head.turn, head.step, call.id)
            slot = _Slot(
                position=self._dropped_messages + len(self._flat),
                group=group,
                head_seq=head.seq,
                place=head.seq + 1 + index,
            )
            self._slots.setdefault(key, []).append(slot)
            self._flat.append(_placeholder(head, index))
            cost += _NO_RESULT_TOKENS
        self._sums.append(before + cost)
        for call_id in {call.id for call in head.tool_calls}:
            early = self._early.pop((head.turn, head.step, call_id), [])
            late = [result for result in early if not self._take(result)]
            if late:
                self._early[head.turn, head.step, call_id] = late

    def _take(self, result: Message) -> bool:
        """Put a result behind its call, or keep it until the call comes; whether it was put. One
        that repeats another is neither."""
        if result.tool_call_id is None:
            return False
        key = (result.turn, result.step, result.tool_call_id)
        slots = self._slots.get(key)
        if slots is None:
            self._early.setdefault(key, []).append(result)
            return False
        real = result.text != NO_RESULT
        slot = _slot_of(result, [s for s in slots if not s.taken or (real and not s.real)])
        if slot is None:
            return False
        slot.taken, slot.real = True, real
        position = slot.position - self._dropped_messages
        change = result.tokens - self._flat[position].tokens
        self._flat[position] = result
        for index in range(slot.group - self._dropped_groups, len(self)):
            self._sums[index] += change
        return True

    def _drop(self, count: int) -> None:
        if not count:
            return
        end = self._start(count)
        gone = [message for message in self._flat[:end] if message.tool_calls]
        self._dropped_tokens = self._sum(count)
        self._dropped_messages += end
        self._dropped_groups += count
        for key in {(m.turn, m.step, call.id) for m in gone for call in m.tool_calls}:
            left = [slot for slot in self._slots.pop(key) if slot.group >= self._dropped_groups]
            if left:
                self._slots[key] = left
        del self._flat[:end], self._starts[:count], self._sums[:count], self._seqs[:count]
        del self._users[: bisect_left(self._users, self._dropped_groups)]


def _slot_of(result: Message, free: list[_Slot]) -> _Slot | None:
    """The call that `result` answers, of those with its id that have no better result: the one
    whose place it has, else the first of the newest answer before it, else the first of all."""
    for slot in free:
        if slot.place == result.seq:
            return slot
    before = [slot for slot in free if slot.head_seq < result.seq]
    if not before:
        return free[0] if free else None
    newest = max(slot.head_seq for slot in before)
    return next(slot for slot in before if slot.head_seq == newest)


def _placeholder(head: Message, index: int) -> Message:
    call = head.tool_calls[index]
    return head.model_copy(
        update={
            "id": f"{head.id}:{index}:{call.id}",
            "role": Role.TOOL,
            "text": NO_RESULT,
            "tokens": _NO_RESULT_TOKENS,
            "tool_calls": (),
            "tool_call_id": call.id,
            "tool_name": call.name,
            "from_session": None,
            "raw": None,
        }
    )
