"""Embedding anew: whatever an embedder has no vector of gets one, step by step.

Invariant: the table itself says what is left, so it does not matter who was at it before or how
it ended. Vectors of other embedders go when the last entry has its new one, not earlier.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from perdure.domain.memory import Reindexed
from perdure.memory.embedders import Embedder, EmbedderFailure, Vector
from perdure.memory.filters import EVERYTHING
from perdure.memory.shelf import Shelf, column_of

#: Entries of one step: a second or two of the bundled model.
BATCH = 64

#: Called after each step.
Progress = Callable[[Reindexed], None]
#: Runs a write under its lock.
Write = Callable[[Callable[[], Any]], Awaitable[Any]]


async def reindex(
    shelves: Sequence[Shelf], embedder: Embedder, write: Write, progress: Progress
) -> Reindexed:
    """Embed what `embedder` has not embedded; see `Memory.reindex`."""
    column = column_of(embedder.name, await embedder.dimension())
    total = sum([await shelf.count(EVERYTHING) for shelf in shelves])
    waiting = sum([await shelf.count(await _without(shelf, column)) for shelf in shelves])
    progress(Reindexed(done=total - waiting, total=total))
    for shelf in shelves:
        before: list[str] = []
        while rows := await shelf.columns(await _without(shelf, column), ["id", "content"], BATCH):
            ids = [row["id"] for row in rows]
            if ids == before:
                raise EmbedderFailure(
                    f"The embedder {embedder.name} gives no numbers for {ids[0]}.",
                    "Look at the entry: `perdure memory get` shows it.",
                )
            vectors = await embedder.passages([row["content"] for row in rows])
            await write(partial(_embed, shelf, embedder.name, ids, vectors))
            before = ids
            waiting -= len(ids)
            progress(Reindexed(done=min(total - waiting, total), total=total))
        await write(partial(_settle, shelf, column))
    return Reindexed(done=min(total - waiting, total), total=total)


async def unembedded(shelf: Shelf, embedder: str) -> str:
    """The condition of rows that an embedder has not embedded."""
    known = (await shelf.embedded_by()).items()
    mine = [column for column, name in known if name == embedder]
    return f"{mine[-1]} IS NULL" if mine else EVERYTHING


async def _embed(shelf: Shelf, embedder: str, ids: list[str], vectors: list[Vector]) -> None:
    column = await shelf.make_room(embedder, len(vectors[0]))
    await shelf.set_vectors(column, ids, vectors)


async def _settle(shelf: Shelf, column: str) -> None:
    # What came in between the last look and the lock keeps the old vectors until next time.
    if not await shelf.count(await _without(shelf, column)):
        for old in await shelf.embedded_by():
            if old != column:
                await shelf.drop_vectors(old)
    await shelf.tend()


async def _without(shelf: Shelf, column: str) -> str:
    """The condition of rows that have no vector in a column."""
    return f"{column} IS NULL" if column in await shelf.embedded_by() else EVERYTHING
