"""The summary that needs no model: the beginning and end of its source, saying so.

Invariant: the same source gives the same text, and it is smaller than its source, or there is none.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.context.acceptance import Written
from perdure.context.excerpts import excerpt
from perdure.context.planning import Pass
from perdure.context.presentation import SUMMARY_OVERHEAD, presented_tokens
from perdure.context.sources import plain_text
from perdure.context.summaries import Summary
from perdure.domain.messages import Message

#: Where the middle was left out.
MARKER = "[… not summarised, the middle is left out here; ctx_expand returns all of it …]"
#: How often a text is shortened that grows when it is escaped.
_TRIES = 8


def fallback(
    made: Pass, source: Sequence[Message] | Sequence[Summary], most_tokens: int
) -> Written | None:
    """Beginning and end of `source`, in at most `most_tokens`, presented as a summary smaller than
    what the pass `made` would replace. None if it is too small for that: it stays as it is."""
    text = plain_text(source).replace("\0", "")
    room = min(most_tokens, made.source_tokens - 1 - SUMMARY_OVERHEAD)
    for _ in range(_TRIES):
        cut = excerpt(text, room, MARKER)
        if cut is None or not cut.strip():
            return None
        tokens = presented_tokens(cut)
        if tokens < made.source_tokens and tokens - SUMMARY_OVERHEAD <= most_tokens:
            return Written(text=cut, tokens=tokens)
        room = room * 3 // 4
    return None
