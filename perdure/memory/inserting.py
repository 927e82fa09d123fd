"""How entries come into a table: each once, and what they contradict marked.

Invariant: run twice, it does nothing the second time; cut off in the middle, a second run ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.domain.memory import MemoryEntry, Stored
from perdure.memory import rows
from perdure.memory.embedders import Vector
from perdure.memory.filters import among, quoted
from perdure.memory.shelf import Row, Shelf


@dataclass(frozen=True)
class Arrival:
    """An entry that is to be stored. `named` says that its path was chosen, not made."""

    entry: MemoryEntry
    named: bool
    supersedes: tuple[str, ...] = ()
    vector: Vector | None = None


async def insert(
    shelf: Shelf, below: Sequence[Shelf], arrivals: Sequence[Arrival], column: str | None
) -> list[Stored]:
    """Store entries of the label of `shelf`; what is known at or below it is stored already.

    `below` are the tables up to and with `shelf`, `column` is where vectors go.
    """
    known = await _known(below, [one.entry for one in arrivals])
    told: list[Stored] = []
    new: list[Row] = []
    positions: dict[str, int] = {}
    for one in arrivals:
        entry = one.entry
        before = known.get(entry.id)
        if before is None and not one.named:
            before = known.get((entry.agent, rows.digest_of(entry.content)))
        if before is not None:
            told.append(before)
            continue
        session = rows.session_digest(entry.session_key, entry.id)
        if session not in positions:
            # What belongs to no session is alone in its own.
            known_session = entry.session_key is not None
            positions[session] = await shelf.next_position(session) if known_session else 0
        row = rows.row_of(entry, positions[session])
        positions[session] += 1
        if column is not None and one.vector is not None:
            row[column] = one.vector
        new.append(row)
        told.append(Stored(id=entry.id, path=entry.path, new=True))
        # What is said twice in one batch is known from here on.
        known[entry.id] = known[entry.agent, row["digest"]] = told[-1].model_copy(
            update={"new": False}
        )
    if new:
        await shelf.add(new)
    for one, stored in zip(arrivals, told, strict=True):
        await _supersede(shelf, one, stored)
    return told


async def _known(
    below: Sequence[Shelf], entries: Sequence[MemoryEntry]
) -> dict[str | tuple[str, str], Stored]:
    """What of the entries is there already: by id, and, if it still holds, by what it says."""
    digests = {rows.digest_of(entry.content) for entry in entries}
    where = (
        f"({among('id', (entry.id for entry in entries))} OR {among('digest', sorted(digests))}) "
        f"AND {among('shown', (rows.SHOWN, rows.SUPERSEDED))}"
    )
    known: dict[str | tuple[str, str], Stored] = {}
    names = ["id", "agent", "path", "digest", "superseded_by"]
    for shelf in below:
        for row in await shelf.columns(where, names):
            stored = Stored(id=row["id"], path=row["path"], new=False)
            known.setdefault(row["id"], stored)
            if row["superseded_by"] is None:
                known.setdefault((row["agent"], row["digest"]), stored)
    return known


async def _supersede(shelf: Shelf, arrival: Arrival, stored: Stored) -> None:
    """Mark what an entry contradicts: the ids it names, and others at a path that was chosen.

    Only entries of its own level are marked. To mark a lower one would tell those below.
    """
    entry = arrival.entry
    conditions = [among("id", arrival.supersedes)] if arrival.supersedes else []
    if arrival.named:
        conditions.append(f"path = {quoted(entry.path)}")
    if not conditions:
        return
    where = (
        f"({' OR '.join(conditions)}) AND agent = {quoted(entry.agent)} "
        f"AND id != {quoted(stored.id)} AND shown = {quoted(rows.SHOWN)}"
    )
    if await shelf.count(where):
        await shelf.change(where, superseded_by=stored.id, shown=rows.SUPERSEDED)
    again = f"id = {quoted(stored.id)} AND shown = {quoted(rows.SUPERSEDED)}"
    if not stored.new and await shelf.count(again):
        # It was said before, was contradicted, and is said again: it holds.
        await shelf.change(again, superseded_by=None, shown=rows.SHOWN)
