"""Which engine a database URL names. Everything that depends on it lies in the engine's modules:
`sqlite` and `search_fts5`, `postgres`, `postgres_dialect` and `search_tsvector`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import URL, Column, Connection, func, literal_column, make_url, select
from sqlalchemy.exc import ArgumentError

from perdure.domain.errors import InvalidArgument
from perdure.store.engine import Engine
from perdure.store.search_fts5 import FTS5Index
from perdure.store.search_index import SearchIndex
from perdure.store.sqlite import SQLiteEngine

#: Transactions that read at the same time in one process, each with a connection.
READERS = 4
_DRIVERS = {"sqlite": ("pysqlite",), "postgresql": ("asyncpg",)}
_HINT = (
    "Use sqlite:///PATH or postgresql://USER:PASSWORD@HOST/DATABASE; several processes share the "
    "store, so SQLite's must be a file."
)


def parse_url(url: str) -> URL:
    """The database URL, checked.

    Raises:
        InvalidArgument: for an engine that Perdure does not run on, or a URL without a database.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        # What cannot be parsed cannot be masked.
        raise InvalidArgument("The store's URL cannot be parsed.", _HINT) from error
    engine, _, driver = parsed.drivername.partition("+")
    if driver and driver not in _DRIVERS.get(engine, ()):
        engine = ""
    if engine not in _DRIVERS or parsed.database in (None, "", ":memory:"):
        raise InvalidArgument(
            f"The store {parsed.render_as_string(hide_password=True)} is not supported.", _HINT
        )
    return parsed.set(drivername=engine)


def place(url: URL) -> str:
    """Where the store is, for people: without a password, and without what else may be one."""
    if url.drivername == "sqlite":
        return url.database or ""
    host = url.host or url.query.get("host", "localhost")
    return f"{url.drivername}://{host}{f':{url.port}' if url.port else ''}/{url.database}"


def local_file(url: URL) -> Path | None:
    """The file of a store that is one."""
    return Path(url.database or "") if url.drivername == "sqlite" else None


def engine_of(url: URL, readers: int = READERS) -> Engine:
    """The engine behind a URL that `parse_url` has checked; it has not connected yet."""
    if url.drivername == "sqlite":
        return SQLiteEngine(url, readers)
    # Most processes never need the driver, which takes a tenth of a second to load.
    from perdure.store.postgres import PostgresEngine

    return PostgresEngine(url, readers, place(url))


def oldest(connection: Connection, column: Column[Any]) -> Any:
    """Of a column that grows with each row, the value in the first one; None without rows."""
    if connection.dialect.name == "sqlite":
        # The rowid grows too. Looked for by itself, the value is behind every row's text.
        return connection.scalar(select(column).order_by(literal_column("rowid")).limit(1))
    return connection.scalar(select(func.min(column)))


def index_of(connection: Connection) -> SearchIndex:
    """The full-text indexes behind a connection."""
    if connection.dialect.name == "sqlite":
        return FTS5Index(connection)
    from perdure.store.search_tsvector import TsvectorIndex

    return TsvectorIndex(connection)
