"""A memory in figures.

Invariant: what a viewer may not see is in no count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from perdure.domain.memory import MemoryStats
from perdure.memory.reindexing import unembedded
from perdure.memory.shelf import Shelf

_COUNTED = ("agent", "memory_type", "trust", "pinned", "superseded_by")


async def stats_of(shelves: Sequence[Shelf], where: str, embedder: str) -> MemoryStats:
    """The rows of some tables that meet a condition, counted."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in (*_COUNTED, "label")}
    not_embedded = 0
    for shelf in shelves:
        found = await shelf.values(where, _COUNTED)
        for name in _COUNTED:
            counts[name].update(found[name])
        counts["label"][shelf.label] += len(found["agent"])
        not_embedded += await shelf.count(f"{where} AND {await unembedded(shelf, embedder)}")
    return MemoryStats(
        entries=counts["label"].total(),
        pinned=counts["pinned"]["True"],
        superseded=counts["superseded_by"].total() - counts["superseded_by"]["None"],
        by_agent=dict(sorted(counts["agent"].items())),
        by_label=dict(counts["label"]),
        by_type=dict(sorted(counts["memory_type"].items())),
        by_trust=dict(sorted(counts["trust"].items())),
        embedder=embedder,
        not_embedded=not_embedded,
    )
