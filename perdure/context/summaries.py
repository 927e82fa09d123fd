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


class ContextParameters(Frozen):
    """The numbers of the context. Tokens are estimates unless said otherwise."""

    #: The share of the history's budget that a context must exceed to be compacted.
    threshold: float = Field(0.75, gt=0.0, le=1.0)
    #: The newest messages that are never compacted; widened to the newest user message.
    fresh_tail: int = Field(64, ge=1)
    #: The most source tokens of one leaf, unless a single exchange has more.
    leaf_chunk_tokens: int = Field(20_000, ge=1_000)
    #: A leaf's length: this share of its source, within the two bounds.
    leaf_target_ratio: float = Field(0.35, gt=0.0, le=0.5)
    leaf_target_min: int = Field(192, ge=32)
    leaf_target_max: int = Field(2_400, ge=192)
    #: Neighbouring leaves that become one node of depth 1.
    leaf_fan_in: int = Field(8, ge=2)
    #: Neighbouring nodes of a depth above 0 that become one node of the next.
    condensed_fan_in: int = Field(4, ge=2)
    #: The same where nothing else brings a context under the threshold.
    pressure_fan_in: int = Field(2, ge=2)
    #: The longest condensed node; a node is at most half of its source in any case.
    condensed_target: int = Field(2_000, ge=192)
    #: The greatest depth: nodes of this depth are condensed into one of the same depth.
    max_depth: int = Field(5, ge=1)
    #: The longest deterministic summary, for sources that no model made smaller.
    fallback_tokens: int = Field(512, ge=64)
    #: One sweep ends after so many passes or seconds, whichever comes first; then the session
    #: goes on.
    sweep_passes: int = Field(12, ge=1)
    sweep_seconds: float = Field(120.0, gt=0.0)
    #: The longest that one model call of a sweep may take.
    call_seconds: float = Field(60.0, gt=0.0)
    #: Expansions up to this size are shown inline; longer ones go to a file.
    inline_expansion_tokens: int = Field(4_000, ge=0)


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
