"""One table: the entries of one tenant at one label.

A level has a table of its own because an index counts: word statistics and the cells of a vector
index are made of every row in it. Where what is hidden lies in another table, it cannot move what
is seen, neither its score nor the time it takes.

Invariant: this module alone speaks LanceDB's query language; it decides nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from perdure.domain.errors import Unavailable
from perdure.domain.labels import Label
from perdure.domain.memory import MemoryEntry
from perdure.memory import rows
from perdure.memory.filters import EVERYTHING, among, quoted

if TYPE_CHECKING:
    from lancedb import AsyncTable
    from lancedb.query import AsyncFTSQuery, AsyncVectorQuery

    from perdure.memory.embedders import Vector

Row = dict[str, Any]

#: What ranking needs of a row.
RANKED = ("id", "agent", "session", "position", "created_at", "terms")
#: From here on an index of the vectors pays: looking at every one takes longer than 20 ms.
INDEX_FROM = 20_000
#: Cells of the vector index that are looked into, and candidates for each result whose exact
#: distance is worked out. Where a filter leaves few, all cells are.
_PROBES = 24
_REFINE = 4
#: What was added lies in a part of the index of its own; with more parts it is made anew.
_SEGMENTS = 8
#: Old versions are kept for those who still read them.
KEEP_VERSIONS = timedelta(minutes=10)
#: Rows that stand for all; the share of them from which on a term is common; and how many rows
#: with a rarer one are counted. What is common in a table of more rows than that is estimated: to
#: count takes 5 ms a term, and 20 ms where 35,000 rows have it.
_SAMPLE = 1_000
_COMMON = 0.02
COUNTED = 2_000


@dataclass(frozen=True)
class Sample:
    """What a part of a table says of all its `total` rows."""

    total: int
    texts: tuple[str, ...]
    #: The mean of the vectors in each column.
    means: dict[str, Vector]

    @classmethod
    def of(cls, total: int, found: Sequence[Row], columns: Sequence[str]) -> Sample:
        """The sample that some rows are."""
        import numpy as np

        means = {}
        for column in columns:
            known = [row[column] for row in found if row[column] is not None]
            if known:
                means[column] = np.array(known, "float32").mean(axis=0).tolist()
        return cls(total, tuple(row["terms"] for row in found), means)

    def share(self, term: str) -> float:
        """The share of the rows that have a term."""
        having = sum(f" {term} " in text for text in self.texts)
        return having / max(len(self.texts), 1)


class Shelf:
    """The table of one label. Safe to use from any event loop."""

    def __init__(self, table: AsyncTable, tenant: str, label: Label) -> None:
        self._table = table
        self.tenant = tenant
        self.label = label
        self._sample: Sample | None = None

    # Reading ---------------------------------------------------------------------------------

    async def count(self, where: str) -> int:
        """How many rows meet a condition."""
        with reading():
            return await self._table.count_rows(where)

    async def frequencies(self, terms: Sequence[str], where: str, total: int) -> list[int]:
        """For each term, how many of the `total` rows that meet a condition have it: counted, or,
        where they are very many, estimated from a sample."""
        if total < COUNTED:
            return await asyncio.gather(*(self._having(term, where) for term in terms))
        sample = await self.sample()
        about = {term: sample.share(term) for term in terms}
        rare = [term for term in terms if about[term] < _COMMON]
        # The newest few that are not indexed yet move no weight, and take long to read.
        having = await asyncio.gather(*(self._having(term, where, indexed=True) for term in rare))
        counts = dict(zip(rare, having, strict=True))
        # Some of those that are counted are more than are counted.
        return [
            counts[term]
            if counts.get(term, COUNTED) < COUNTED
            else max(counts.get(term, 0), round(total * about[term]))
            for term in terms
        ]

    async def _having(self, term: str, where: str, *, indexed: bool = False) -> int:
        """How many rows have a term, up to `COUNTED`."""
        query = self._with_words([term], where, COUNTED, indexed=indexed).select(["_score"])
        with reading():
            return int((await query.to_arrow()).num_rows)

    async def by_words(self, terms: Sequence[str], where: str, limit: int) -> list[Row]:
        """The rows with most of the terms, best first by the index's own measure."""
        if not terms:
            return []
        return await self._best(lambda: self._with_words(terms, where, limit), "_score")

    async def by_meaning(self, column: str, vector: Vector, where: str, limit: int) -> list[Row]:
        """The rows whose vectors are nearest, each with its product with `vector` as `nearness`."""

        def nearest() -> AsyncVectorQuery:
            query = self._table.query().nearest_to(vector).column(column).distance_type("dot")
            # Cells are searched until the page is full: a filter must not leave fewer than there
            # are.
            query = query.maximum_nprobes(0).minimum_nprobes(_PROBES).refine_factor(_REFINE)
            return query.where(where).limit(limit)

        found = await self._best(nearest, "_distance")
        return [{**row, "nearness": 1.0 - row["_distance"]} for row in found]

    def _with_words(
        self, terms: Sequence[str], where: str, limit: int, *, indexed: bool = False
    ) -> AsyncFTSQuery:
        from lancedb.query import MatchQuery

        # Its other arguments have defaults that its stubs do not tell.
        match = MatchQuery(" ".join(terms), "terms")  # type: ignore[call-arg]
        query = self._table.query().nearest_to_text(match)
        query = query.fast_search() if indexed else query
        return query.where(where).limit(limit)

    async def _best(
        self, query: Callable[[], AsyncFTSQuery | AsyncVectorQuery], measure: str
    ) -> list[Row]:
        """The rows that an index finds, in its order, each with the index's measure.

        To read columns by the rows' numbers takes a fifth of the time that the index takes for it;
        but a number is good for one version of the table only.
        """
        with reading():
            version = await self._table.version()
            found = await query().with_row_id().select([measure]).to_arrow()
            numbers = found["_rowid"].to_pylist()
            if not numbers:
                return []
            take = self._table.take_row_ids(numbers).with_row_id().select(list(RANKED))
            taken = {row["_rowid"]: row for row in await take.to_list()}
            if await self._table.version() != version:
                return list(await query().select([*RANKED, measure]).to_list())
            measures = found[measure].to_pylist()
        return [
            {**taken[number], measure: value}
            for number, value in zip(numbers, measures, strict=True)
        ]

    async def at_places(self, places: Iterable[str], where: str) -> list[Row]:
        """The rows at those places."""
        condition = f"{among('place', places)} AND {where}"
        with reading():
            return list(await self._table.query().where(condition).select(list(RANKED)).to_list())

    async def columns(
        self, where: str, names: Sequence[str], limit: int | None = None
    ) -> list[Row]:
        """Some columns of the rows that meet a condition."""
        query = self._table.query().where(where).select(list(names))
        if limit is not None:
            query = query.limit(limit)
        with reading():
            return list(await query.to_list())

    async def values(self, where: str, names: Sequence[str]) -> dict[str, list[str]]:
        """Some columns of the rows that meet a condition, as texts, column by column."""
        with reading():
            table = await self._table.query().where(where).select(list(names)).to_arrow()
        return {name: [str(value) for value in table[name].to_pylist()] for name in names}

    async def entries(
        self, where: str, *, newest: bool = True, limit: int | None = None, offset: int = 0
    ) -> list[MemoryEntry]:
        """The entries that meet a condition, in order of time."""
        from lancedb.query import ColumnOrdering

        order = [
            ColumnOrdering(column_name="created_at", ascending=not newest, nulls_first=False),
            ColumnOrdering(column_name="id", ascending=True, nulls_first=False),
        ]
        query = self._table.query().where(where).select(list(rows.ENTRY_COLUMNS)).order_by(order)
        if limit is not None:
            query = query.limit(limit).offset(offset)
        with reading():
            found = await query.to_list()
        return [rows.to_entry(row, self.tenant, self.label) for row in found]

    async def embedded_by(self) -> dict[str, str]:
        """The columns with vectors, and the names of the embedders that made them."""
        with reading():
            schema = await self._table.schema()
        return {
            field.name: (field.metadata or {})[b"embedder"].decode()
            for field in schema
            if field.name.startswith("vector_")
        }

    async def sample(self) -> Sample:
        """What some of the rows say of all; looked at anew when the table has doubled."""
        total = await self.count(EVERYTHING)
        if self._sample is None or not self._sample.total <= total < 2 * self._sample.total:
            columns = list(await self.embedded_by())
            found = await self.columns(EVERYTHING, ["terms", *columns], _SAMPLE)
            self._sample = Sample.of(total, found, columns)
        return self._sample

    # Writing, for the writer's thread alone --------------------------------------------------

    async def add(self, new: list[Row]) -> int:
        """Insert the rows whose ids are not there yet; how many were."""
        with writing():
            schema = await self._table.schema()
            data = rows.batch(new, schema)
            merge = self._table.merge_insert("id").when_not_matched_insert_all()
            result = await merge.execute(data, on_bad_vectors="null")
        return int(result.num_inserted_rows)

    async def change(self, where: str, **values: str | bool | None) -> None:
        """Set columns of the rows that meet a condition."""
        literals = {name: _literal(value) for name, value in values.items()}
        with writing():
            await self._table.update(updates_sql=literals, where=where)

    async def remove(self, where: str) -> None:
        """Delete the rows that meet a condition."""
        with writing():
            await self._table.delete(where)

    async def next_position(self, session: str) -> int:
        """The number of the next entry of a session."""
        taken = await self.columns(f"session = {quoted(session)}", ["position"])
        return max((row["position"] for row in taken), default=-1) + 1

    async def make_room(self, embedder: str, size: int) -> str:
        """The column for an embedder's vectors, made if there is none."""
        import pyarrow as pa

        column = column_of(embedder, size)
        with writing():
            if (await self._table.schema()).get_field_index(column) < 0:
                metadata = {"embedder": embedder, "dimension": str(size)}
                vector = pa.field(column, pa.list_(pa.float16(), size), metadata=metadata)
                await self._table.add_columns(pa.schema([vector]))
        return column

    async def set_vectors(self, column: str, ids: list[str], values: list[Vector]) -> None:
        """Give known entries their vectors."""
        with writing():
            data = rows.vectors(ids, column, values, await self._table.schema())
            merge = self._table.merge_insert("id").when_matched_update_all()
            await merge.execute(data, on_bad_vectors="null")

    async def drop_vectors(self, column: str) -> None:
        """Forget the vectors of an embedder that is no longer used."""
        with writing():
            await self._table.drop_columns([column])

    async def index(self) -> None:
        """Make the indexes that are missing; the one of vectors once it pays."""
        from lancedb.index import FTS, Bitmap, BTree, IvfRq, LabelList

        words = FTS(
            base_tokenizer="whitespace",
            # `perdure.memory.analysis` did all that: an index must not do it differently.
            lower_case=False,
            stem=False,
            remove_stop_words=False,
            ascii_folding=False,
            max_token_length=4 * 64 + 1,
        )
        wanted: dict[str, Any] = {
            **dict.fromkeys(("id", "digest", "session", "place"), BTree()),
            **dict.fromkeys(("agent", "shown", "pinned"), Bitmap()),
            "tags": LabelList(),
            "terms": words,
        }
        with writing():
            every = await self._table.list_indices()
            known = {column: one for one in every for column in one.columns}
            for column, config in wanted.items():
                if column not in known:
                    await self._table.create_index(column, config=config)
            for column in await self.embedded_by():
                if column in known and (known[column].num_segments or 1) <= _SEGMENTS:
                    continue
                if await self._table.count_rows(f"{column} IS NOT NULL") >= INDEX_FROM:
                    await self._table.create_index(column, config=IvfRq(distance_type="dot"))

    async def tend(self, keep: timedelta = KEEP_VERSIONS) -> int:
        """Merge small files, bring the indexes up to date, remove old versions; rows it has."""
        await self.index()
        with writing():
            await self._table.optimize(cleanup_older_than=keep)
            return await self._table.count_rows()


def column_of(embedder: str, dimension: int) -> str:
    """The column in which an embedder's vectors are kept."""
    return f"vector_{hashlib.sha256(f'{embedder}/{dimension}'.encode()).hexdigest()[:12]}"


@contextmanager
def reading() -> Iterator[None]:
    """Tell what the index cannot read in our own words."""
    with _told("read", "Is its place still there, and the table not damaged?"):
        yield


@contextmanager
def writing() -> Iterator[None]:
    """Tell what the index cannot write in our own words; nothing of it was committed."""
    with _told("written", "Is the disk full or read-only? What was stored before is untouched."):
        yield


@contextmanager
def _told(what: str, hint: str) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, OSError, ValueError) as error:
        why = " ".join(str(error).split())[:300]
        raise Unavailable(f"The memory cannot be {what}: {why}", hint) from error


def _literal(value: str | bool | None) -> str:
    if value is None:
        return "NULL"
    return str(value).lower() if isinstance(value, bool) else quoted(value)
