"""What a summary is made from, written down for the model that writes it.

Invariant: whatever a source says, it cannot leave the place it has in the prompt: a line that
begins with a sign of ours was written by us, since no text holds one. A prompt's size is bounded,
however long a single message is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC

from perdure.context.escaping import attribute, escaped
from perdure.context.excerpts import excerpt
from perdure.context.summaries import Summary
from perdure.context.tokens import estimate_tokens
from perdure.domain.messages import Message, Role

#: A part of a message is not cut to less, however many there are.
_LEAST_PART = 64
_CUT = "[… cut for this summary only: the message itself is kept whole …]"


def render_messages(messages: Sequence[Message], most_tokens: int) -> str:
    """The messages as data, oldest first: who said each, when, and from which session it came.

    If they take more than `most_tokens`, the longest parts of them are cut to beginning and end.
    """
    cap = _cap([part for message in messages for part in _parts(message)], most_tokens)
    lines: list[str] = []
    day = ""
    for message in messages:
        at = message.at.astimezone(UTC)
        if f"{at:%Y-%m-%d}" != day:
            day = f"{at:%Y-%m-%d}"
            lines.append(f"<day {day}>")
        lines.append(f"<#{message.seq} {_who(message)} {at:%H:%M}>")
        if message.text:
            lines.append(_within(message.text, cap))
        for call in message.tool_calls:
            lines.append(f"<call {attribute(call.name)}> {_within(call.arguments, cap)}")
    return "\n".join(lines)


def render_summaries(summaries: Sequence[Summary]) -> str:
    """The summaries as data, oldest first: which each is and what it covers."""
    lines = []
    for summary in summaries:
        first, last = (at.astimezone(UTC) for at in (summary.earliest_at, summary.latest_at))
        lines.append(
            f"<summary of {summary.messages} messages, {first:%Y-%m-%d %H:%M} to "
            f"{last:%Y-%m-%d %H:%M}>"
        )
        lines.append(escaped(summary.text))
    return "\n".join(lines)


def plain_text(source: Sequence[Message] | Sequence[Summary]) -> str:
    """The source as plain text, for a summary that no model writes."""
    return "\n".join(_plain(source))


def _plain(source: Sequence[Message] | Sequence[Summary]) -> Iterator[str]:
    for one in source:
        if isinstance(one, Summary):
            yield one.text
            continue
        yield f"{_who(one)}: {one.text}" if one.text else f"{_who(one)}:"
        yield from (f"call {call.name} {call.arguments}" for call in one.tool_calls)


def _who(message: Message) -> str:
    if message.role is Role.TOOL:
        return f"result of {attribute(message.tool_name or 'a tool')}"
    if message.from_session is not None:
        return f"{message.role} from {attribute(message.from_session)}"
    return str(message.role)


def _parts(message: Message) -> Iterator[str]:
    yield message.text
    yield from (call.arguments for call in message.tool_calls)


def _cap(parts: Sequence[str], most_tokens: int) -> int | None:
    """How long a part may be for all of them to fit into `most_tokens`; None if they do."""
    sizes = sorted(estimate_tokens(part) for part in parts)
    room = most_tokens
    if sum(sizes) <= room:
        return None
    for index, size in enumerate(sizes):
        share = room // (len(sizes) - index)
        if size > share:
            return max(share, _LEAST_PART)
        room -= size
    return None


def _within(text: str, cap: int | None) -> str:
    if cap is None:
        return escaped(text)
    cut = excerpt(text, cap, _CUT)
    return escaped(_CUT if cut is None else cut)
