"""What agents remember: stored, found, shown, forgotten.

Invariant: a viewer sees entries at or below their label, and nothing above it changes any answer.
A secret is never stored. What is stored once stays one entry, however often it is said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from perdure.config.memory import MemorySettings
from perdure.domain.errors import InvalidArgument, NotFound
from perdure.domain.labels import Label
from perdure.domain.memory import (
    MAX_RESULTS,
    MemoryEntry,
    MemoryPage,
    MemoryResults,
    MemoryStats,
    NewEntry,
    Reindexed,
    Sort,
    Stored,
    Tended,
    View,
)
from perdure.memory import inserting, pinning, reindexing
from perdure.memory.checks import checked
from perdure.memory.embedders import Embedder, EmbedderFailure, Vector, embedder
from perdure.memory.figures import stats_of
from perdure.memory.files import MemoryFile, changes
from perdure.memory.filters import EVERYTHING, among, follows, seen
from perdure.memory.inserting import Arrival
from perdure.memory.pinning import Pinned
from perdure.memory.reindexing import Progress
from perdure.memory.rows import SHOWN
from perdure.memory.search import Search
from perdure.memory.shelf import Shelf
from perdure.memory.shelves import Shelves, folder_of
from perdure.memory.writer import Writer
from perdure.search import LONGEST_QUERY, parse

#: A write leaves a small file, and each makes a search about a millisecond slower. A process
#: merges them after this many writes, or, where that takes longer, after one for so many rows.
_TEND_AFTER = 16
_ROWS_A_WRITE = 2_000

Result = TypeVar("Result")


class Memory:
    """The memory of every tenant under one URI. Safe to use from any event loop, from several
    processes at once, and after a fork.

    Args:
        uri: a folder, or a place in an object store as `s3://bucket/path`.
        embedder_name: the model that new entries are embedded with.
        locks: a folder of this machine for the locks of its writers.
        options: credentials and the like of an object store.
        embedders: finds an embedder by its name.
    """

    def __init__(
        self,
        uri: str,
        embedder_name: str,
        locks: Path,
        options: dict[str, str] | None = None,
        embedders: Callable[[str], Embedder] = embedder,
    ) -> None:
        self._shelves = Shelves(uri, options or {})
        self._embedders = embedders
        self._embedder = embedders(embedder_name)
        self._writer = Writer(locks)
        self._writes: Counter[tuple[str, Label]] = Counter()

    @classmethod
    def at(cls, settings: MemorySettings, home: Path) -> Memory:
        """The memory that settings name."""
        place = settings.place(home)
        options = settings.storage_options
        return cls(place, settings.embedder, home / "memory-locks", options)

    async def close(self) -> None:
        """Finish what was begun."""
        await self._writer.close()

    # Storing ---------------------------------------------------------------------------------

    async def store(self, *new: NewEntry) -> tuple[Stored, ...]:
        """Remember: all of them, or none when one is refused.

        An entry whose embedder fails is stored all the same, and embedded by the next reindex.

        Raises:
            Denied: one holds a secret; it says which kind and where.
            InvalidArgument, LimitExceeded: one is empty, misnamed or too large.
            Unavailable: the place cannot be written.
        """
        now = datetime.now(UTC)
        entries = [checked(one, now) for one in new]
        vectors = await self._embedded([entry.content for entry in entries])
        by_tenant: dict[str, list[int]] = {}
        for number, entry in enumerate(entries):
            by_tenant.setdefault(entry.tenant, []).append(number)
        stored: dict[int, Stored] = {}
        for tenant, numbers in by_tenant.items():
            arrivals = [
                Arrival(
                    entries[number],
                    named=new[number].key is not None,
                    supersedes=new[number].supersedes,
                    vector=None if vectors is None else vectors[number],
                )
                for number in numbers
            ]
            done = await self._write(tenant, partial(self._insert, tenant, arrivals))
            stored |= dict(zip(numbers, done, strict=True))
        return tuple(stored[number] for number in range(len(entries)))

    async def keep_files(
        self, tenant: str, agent: str, session_key: str, files: Sequence[MemoryFile]
    ) -> int:
        """Have the memory files of a session indexed as they are now; how many parts are new."""
        shelves = await self._shelves.visible(tenant, Label.RESTRICTED)
        change = await changes(shelves, agent, session_key, files, datetime.now(UTC))
        if change.is_none:
            return 0
        vectors = await self._embedded([row["content"] for _, row in change.fresh])

        async def replace() -> None:
            for label in Label:
                pairs = change.rows_of(label, vectors)
                if not pairs and not change.stale[label]:
                    continue
                shelf = await self._shelves.of(tenant, label)
                column = await self._room(shelf, vectors if pairs else None)
                rows = [{**row, **({column: vector} if column else {})} for row, vector in pairs]
                await change.apply(shelf, rows)

        await self._write(tenant, replace)
        return len(change.fresh)

    # Looking ---------------------------------------------------------------------------------

    async def search(
        self,
        view: View,
        query: str,
        limit: int = 10,
        *,
        words: bool = True,
        meaning: bool = True,
    ) -> MemoryResults:
        """The entries that answer `query` best, superseded ones aside.

        Plain words ask for what they are about; with operators, phrases or prefixes
        (`perdure.search`) a result must match them. Without `words` or without `meaning` only the
        other is asked.

        Raises:
            InvalidArgument: for a blank or overlong query, or a limit out of range.
        """
        if not query.strip() or len(query) > LONGEST_QUERY:
            raise InvalidArgument(
                f"The query has {len(query)} characters.",
                f"Ask with 1 to {LONGEST_QUERY} characters that are not all blank.",
            )
        if not 1 <= limit <= MAX_RESULTS:
            raise InvalidArgument(f"limit is {limit}.", f"It is 1 to {MAX_RESULTS}.")
        shelves = await self._shelves.visible(view.tenant, view.label)
        one = Search(shelves, parse(query), view, self._embedders, words=words, meaning=meaning)
        return await one.page(limit)

    async def get(self, view: View, path: str) -> MemoryEntry:
        """The entry at a path, or of an id; of several at one path the one that holds now.

        Raises:
            NotFound: when there is none that the viewer may see.
        """
        where = f"({among('path', [path])} OR {among('id', [path])}) AND " + seen(
            view.model_copy(update={"session_key": None}), superseded=True
        )
        found: list[MemoryEntry] = []
        for shelf in await self._shelves.visible(view.tenant, view.label):
            found += await shelf.entries(where)
        if not found:
            raise NotFound(f"There is no memory {path!r}.", "Search for what it says.")
        found.sort(key=lambda one: (one.superseded_by is None, one.created_at), reverse=True)
        return found[0]

    async def browse(
        self,
        view: View,
        *,
        offset: int = 0,
        limit: int = 20,
        sort: Sort = Sort.NEWEST,
        after: tuple[datetime, str] | None = None,
    ) -> MemoryPage:
        """A page of the entries, superseded ones among them, by their time. With `after`, an
        entry's time and id, it begins after that entry.

        Raises:
            InvalidArgument: for an offset or a limit out of range.
        """
        if offset < 0 or not 1 <= limit <= 1_000:
            raise InvalidArgument(
                f"offset {offset}, limit {limit} are out of range.",
                "offset is 0 or more, limit 1 to 1,000.",
            )
        where = seen(view, superseded=True)
        newest = sort is Sort.NEWEST
        page = where if after is None else f"{where} AND {follows(*after, newest=newest)}"
        found: list[MemoryEntry] = []
        total = 0
        for shelf in await self._shelves.visible(view.tenant, view.label):
            total += await shelf.count(where)
            found += await shelf.entries(page, newest=newest, limit=offset + limit)
        found.sort(key=lambda one: one.id)
        found.sort(key=lambda one: one.created_at, reverse=newest)
        return MemoryPage(entries=tuple(found[offset : offset + limit]), total=total)

    async def entries(self, view: View) -> AsyncIterator[MemoryEntry]:
        """Every entry, level by level, oldest first: for an export."""
        for shelf in await self._shelves.visible(view.tenant, view.label):
            for entry in await shelf.entries(seen(view, superseded=True), newest=False):
                yield entry

    async def pinned(self, view: View, budget: int) -> Pinned:
        """The pinned entries as text for a model, newest first, within `budget` tokens."""
        where = f"pinned AND {seen(view)}"
        found: list[MemoryEntry] = []
        for shelf in await self._shelves.visible(view.tenant, view.label):
            found += await shelf.entries(where)
        return pinning.rendered(found, budget)

    async def stats(self, view: View) -> MemoryStats:
        """The entries in figures."""
        shelves = await self._shelves.visible(view.tenant, view.label)
        return await stats_of(shelves, seen(view, superseded=True), self._embedder.name)

    async def tenants(self) -> list[str]:
        """Every tenant that has a memory."""
        return await self._shelves.tenants()

    # Changing --------------------------------------------------------------------------------

    async def pin(self, view: View, ids: Sequence[str], *, pinned: bool = True) -> tuple[str, ...]:
        """Pin entries, or unpin them; the ids of those that changed.

        An entry of a lower level than the viewer's is left as it is: those who read it there
        would see what was done here.
        """
        where = f"{among('id', ids)} AND pinned = {str(not pinned).lower()} AND " + seen(
            view, superseded=True
        )

        async def change() -> tuple[str, ...]:
            changed: list[str] = []
            for shelf in await self._shelves.visible(view.tenant, view.label):
                if shelf.label is view.label:
                    changed += [row["id"] for row in await shelf.columns(where, ["id"])]
                    if changed:
                        await shelf.change(among("id", changed), pinned=pinned)
            return tuple(changed)

        return await self._write(view.tenant, change)

    async def delete(self, view: View, ids: Sequence[str] | None = None) -> tuple[str, ...]:
        """Forget entries by id, or, with None, all that the viewer sees; the ids that are gone.

        What a forgotten entry had superseded holds again. Memory files are not touched: they
        belong to their workspace.
        """
        where = seen(view.model_copy(update={"session_key": None}), superseded=True)
        if ids is not None:
            where = f"{among('id', ids)} AND {where}"

        async def remove() -> tuple[str, ...]:
            gone: list[str] = []
            for shelf in await self._shelves.visible(view.tenant, view.label):
                found = [row["id"] for row in await shelf.columns(where, ["id"])]
                if found:
                    await shelf.remove(where)
                    await shelf.change(
                        among("superseded_by", found), superseded_by=None, shown=SHOWN
                    )
                gone += found
            return tuple(dict.fromkeys(gone))

        return await self._write(view.tenant, remove)

    # Upkeep ----------------------------------------------------------------------------------

    async def tend(self, tenant: str) -> Tended:
        """Merge small files, bring the indexes up to date, remove versions nobody reads."""

        async def tend() -> Tended:
            shelves = await self._shelves.visible(tenant, Label.RESTRICTED)
            counts = [await shelf.tend() for shelf in shelves]
            return Tended(tables=len(shelves), rows=sum(counts))

        return await self._write(tenant, tend)

    async def reindex(self, tenant: str, progress: Progress = lambda _: None) -> Reindexed:
        """Embed whatever the configured embedder has not embedded yet, step by step.

        Every step is kept, so one that was cut off goes on where it stood. Search works
        meanwhile: by the old vectors, by the new ones, and by words.

        Raises:
            EmbedderFailure: what was embedded up to then is kept.
        """
        shelves = await self._shelves.visible(tenant, Label.RESTRICTED)
        write = partial(self._writer.run, folder_of(tenant))
        return await reindexing.reindex(shelves, self._embedder, write, progress)

    # Parts -----------------------------------------------------------------------------------

    async def _write(self, tenant: str, job: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        return await self._writer.run(folder_of(tenant), job)

    async def _insert(self, tenant: str, arrivals: Sequence[Arrival]) -> list[Stored]:
        """On the writer's thread, under the tenant's lock."""
        stored: dict[str, Stored] = {}
        for label in Label:
            of_label = [one for one in arrivals if one.entry.label is label]
            if not of_label:
                continue
            shelf = await self._shelves.of(tenant, label)
            below = await self._shelves.visible(tenant, label)
            column = await self._room(shelf, [one.vector for one in of_label if one.vector])
            done = await inserting.insert(shelf, below, of_label, column)
            stored |= {one.entry.id: told for one, told in zip(of_label, done, strict=True)}
            self._writes[tenant, label] += 1
            if self._writes[tenant, label] >= _TEND_AFTER:
                rows = await shelf.count(EVERYTHING)
                if self._writes[tenant, label] >= rows // _ROWS_A_WRITE:
                    await shelf.tend()
                    self._writes[tenant, label] = 0
        return [stored[one.entry.id] for one in arrivals]

    async def _embedded(self, texts: Sequence[str]) -> list[Vector] | None:
        """The texts' vectors, or None where the embedder fails: they are embedded later."""
        try:
            return await self._embedder.passages(texts) if texts else []
        except EmbedderFailure:
            return None

    async def _room(self, shelf: Shelf, vectors: Sequence[Vector] | None) -> str | None:
        """The column for vectors of the configured embedder; None when there are none."""
        if not vectors:
            return None
        return await shelf.make_room(self._embedder.name, len(vectors[0]))
