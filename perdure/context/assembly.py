"""From a stretch of transcript to the messages of one model call.

Invariant: nothing a provider would refuse is assembled. Every tool call is followed at once by
exactly one result, no result stands alone, no message is empty, the first is a user's, and the
message that began the turn is always there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.context.tokens import message_tokens
from perdure.domain.messages import Frozen, Message, Role

#: The share of the model's window that an assembled context may take; the rest is the answer's.
WINDOW_SHARE = 0.9
#: What stands for a result that was never recorded: its process died, or the turn was stopped.
NO_RESULT = '{"error": {"code": "unavailable", "message": "No result was recorded."}}'


class Context(Frozen):
    """The messages to send, oldest first, and whether older ones were left out."""

    messages: tuple[Message, ...]
    cut: bool = False


def assemble(transcript: Sequence[Message], budget: int) -> Context:
    """The newest part of `transcript` (oldest first) that fits into `budget` tokens.

    The newest user message and the newest exchange are kept whatever they cost. What is left out
    is left out whole: a call never without its results.
    """
    groups = _pair(transcript)
    last_user = max(
        (index for index, group in enumerate(groups) if group[0].role is Role.USER), default=None
    )
    if last_user is None:
        return Context(messages=(), cut=bool(groups))
    room = budget - _cost(groups[last_user])
    first = len(groups)
    while first > 0:
        cost = 0 if first - 1 == last_user else _cost(groups[first - 1])
        newest = first == len(groups)
        if cost > room and not newest:
            break
        room -= cost
        first -= 1
    if first > last_user:
        kept = [groups[last_user], *groups[first:]]
    else:
        while groups[first][0].role is not Role.USER:
            first += 1
        kept = groups[first:]
    messages = tuple(message for group in kept for message in group)
    return Context(messages=messages, cut=len(kept) < len(groups))


def _cost(group: Iterable[Message]) -> int:
    return sum(message.tokens for message in group)


def _pair(transcript: Sequence[Message]) -> list[list[Message]]:
    """Groups that may only be kept or left whole: a user message, or an answer and its results.

    Results are matched inside their own step, since providers repeat call ids between turns.
    """
    results: dict[tuple[int, int, str], Message] = {}
    for message in transcript:
        if message.role is Role.TOOL and message.tool_call_id is not None:
            results.setdefault((message.turn, message.step, message.tool_call_id), message)
    groups = []
    for message in transcript:
        if message.role is Role.TOOL or not (message.text or message.tool_calls):
            continue
        group = [message]
        seen: set[str] = set()
        for call in message.tool_calls:
            if call.id in seen:
                continue
            seen.add(call.id)
            result = results.get((message.turn, message.step, call.id))
            group.append(
                result
                or message.model_copy(
                    update={
                        "id": f"{message.id}:{call.id}",
                        "role": Role.TOOL,
                        "text": NO_RESULT,
                        "tokens": message_tokens(NO_RESULT),
                        "tool_calls": (),
                        "tool_call_id": call.id,
                        "tool_name": call.name,
                        "raw": None,
                    }
                )
            )
        groups.append(group)
    return groups
