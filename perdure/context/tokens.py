"""How many tokens a text is, without asking a tokenizer.

Invariant: an estimate for budgets, deliberately a little high; billing uses what providers report.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from perdure.domain.messages import ToolCall

#: Runs of text by script, with the characters one token holds on average (o200k_base, rounded
#: down): prose and code in ASCII, other alphabets, ideographs and kana and Hangul, and symbols
#: such as emoji, which often take more than one token each.
_CHARACTERS_PER_TOKEN = (
    (re.compile(r"[\x00-\x7f]+"), 3.6),
    (re.compile(r"[\u0080-\u1fff]+"), 2.2),
    (re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]+"), 1.0),
    (re.compile(r"[\u2000-\u2e7f\ua000-\uabff\ufb00-\ufeff\U00010000-\U0010ffff]+"), 0.5),
)
#: What a message costs beside its text: role, separators, ids.
MESSAGE_OVERHEAD = 6


def estimate_tokens(text: str) -> int:
    """The tokens of `text`, estimated by script; 0 only for the empty text."""
    if not text:
        return 0
    total = sum(
        sum(len(run) for run in pattern.findall(text)) / size
        for pattern, size in _CHARACTERS_PER_TOKEN
    )
    return max(1, round(total))


def message_tokens(text: str, tool_calls: Iterable[ToolCall] = ()) -> int:
    """The tokens of a message with its tool calls."""
    calls = sum(estimate_tokens(call.name + call.arguments) for call in tool_calls)
    return MESSAGE_OVERHEAD + estimate_tokens(text) + calls
