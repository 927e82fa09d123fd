"""Summaries: the nodes of the DAG over a transcript, their names and the numbers that shape them.

Invariant: a summary covers one contiguous span of one session and epoch, and never changes. Its id
follows from what it covers, so whoever makes it again makes the same node. The summaries in a
context have disjoint spans; a message is raw in it exactly if none of them covers its seq.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime

from pydantic import Field

from perdure.domain.labels import Label
from perdure.domain.messages import Frozen

#: Raised when prompts or rules change so much that old attempts say nothing about new ones: it is
#: part of every id.
POLICY_VERSION = 1
#: Hexadecimal digits of an id: 96 bits, so that ids never meet by chance.
_ID_DIGITS = 24

#: Below these, in tokens, a summary says nothing.
_LEAST_CHUNK = 256
_LEAST_TARGET = 32
#: One leaf's source is at most this part of the history's budget, and of the summariser's window:
#: leaves must be possible long before a context is full, and a prompt must leave an answer room.
_BUDGETS_PER_CHUNK = 5
_WINDOWS_PER_CHUNK = 2


class ContextParameters(Frozen):
    """The numbers of the context. Tokens are estimates unless said otherwise."""

    #: The share of the history's budget that a context must exceed to be compacted.
    threshold: float = Field(0.75, gt=0.0, le=1.0)
    #: The newest messages that are never compacted; widened to the newest user message.
    fresh_tail: int = Field(64, ge=1)
    #: The share of the budget beyond which older messages are no longer part of that tail, unless
    #: they belong to the newest user message: 64 tool results can be longer than a window.
    fresh_tail_share: float = Field(0.5, gt=0.0, le=1.0)
    #: The most source tokens of one leaf, unless a single exchange has more.
    leaf_chunk_tokens: int = Field(20_000, ge=_LEAST_CHUNK)
    #: A leaf's length: this share of its source, within the two bounds.
    leaf_target_ratio: float = Field(0.35, gt=0.0, le=0.5)
    leaf_target_min: int = Field(192, ge=_LEAST_TARGET)
    leaf_target_max: int = Field(2_400, ge=_LEAST_TARGET)
    #: Neighbouring leaves that become one node of depth 1.
    leaf_fan_in: int = Field(8, ge=2)
    #: Neighbouring nodes of a depth above 0 that become one node of the next.
    condensed_fan_in: int = Field(4, ge=2)
    #: The same where nothing else brings a context under the threshold.
    pressure_fan_in: int = Field(2, ge=2)
    #: The longest condensed node; a node is at most half of its source in any case.
    condensed_target: int = Field(2_000, ge=_LEAST_TARGET)
    #: The greatest depth: nodes of this depth are condensed into one of the same depth.
    max_depth: int = Field(5, ge=1)
    #: The longest deterministic summary, for sources that no model made smaller.
    fallback_tokens: int = Field(512, ge=_LEAST_TARGET)
    #: One sweep ends after so many passes or seconds, whichever comes first; then the session
    #: goes on.
    sweep_passes: int = Field(12, ge=1)
    sweep_seconds: float = Field(120.0, gt=0.0)
    #: The longest that one model call of a sweep may take.
    call_seconds: float = Field(60.0, gt=0.0)
    #: Expansions up to this size are shown inline; longer ones go to a file.
    inline_expansion_tokens: int = Field(4_000, ge=0)

    def fitted(self, budget: int, window: int | None = None) -> ContextParameters:
        """The same for a history of `budget` tokens and a summariser that takes `window`.

        From a budget of 100,000 tokens on nothing changes. Below, leaves and summaries shrink with
        it, so that as many of them fit as in a large one.
        """
        chunk = min(self.leaf_chunk_tokens, max(_LEAST_CHUNK, budget // _BUDGETS_PER_CHUNK))
        if window is not None:
            chunk = min(chunk, max(_LEAST_CHUNK, window // _WINDOWS_PER_CHUNK))
        # As many summaries as are condensed at once take no more than a leaf's source.
        longest = max(_LEAST_TARGET, chunk // max(self.leaf_fan_in, self.condensed_fan_in))
        return self.model_copy(
            update={
                "leaf_chunk_tokens": chunk,
                "leaf_target_min": min(self.leaf_target_min, longest),
                "leaf_target_max": min(self.leaf_target_max, longest),
                "condensed_target": min(self.condensed_target, longest),
                "fallback_tokens": min(self.fallback_tokens, longest),
            }
        )


class Summary(Frozen):
    """One node: what it covers, its text, and the turns that see it.

    `tokens` is what it takes of a context, presented as the model reads it; `source_tokens` what
    its direct sources took (messages for a leaf, nodes above). `messages` counts all messages
    below it. `fallback` tells that no model wrote it. It is in the context of the turns from
    `from_turn` on, up to but without `until_turn`, when a node above it took its place.
    """

    id: str
    session_key: str
    epoch: int
    #: 0 for a leaf, which covers messages.
    depth: int = Field(ge=0)
    first_seq: int
    last_seq: int
    messages: int = Field(ge=1)
    text: str
    tokens: int
    source_tokens: int
    label: Label = Label.PUBLIC
    earliest_at: datetime
    latest_at: datetime
    fallback: bool = False
    from_turn: int
    until_turn: int | None = None

    def covers(self, seq: int) -> bool:
        """Whether the message `seq` of its session and epoch lies under it."""
        return self.first_seq <= seq <= self.last_seq

    def visible_at(self, turn: int) -> bool:
        """Whether it is in the context of turn `turn`."""
        return self.from_turn <= turn and (self.until_turn is None or turn < self.until_turn)


def summary_id(
    session_key: str,
    epoch: int,
    depth: int,
    sources: Sequence[str],
    policy_version: int = POLICY_VERSION,
) -> str:
    """The id of the summary of `sources`: message ids in order for a leaf, else child ids.

    The same arguments give the same id on every machine and in every release.
    """
    digest = hashlib.sha256()
    # Lengths keep apart what would read the same when joined.
    for part in (session_key, str(epoch), str(depth), str(policy_version), *sources):
        data = part.encode(errors="surrogatepass")
        digest.update(f"{len(data)}:".encode() + data)
    return f"sum_{digest.hexdigest()[:_ID_DIGITS]}"
