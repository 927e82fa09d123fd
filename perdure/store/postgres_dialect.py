"""SQLAlchemy's dialect for PostgreSQL, with columns that hold what SQLite's hold.

Invariant: tables and migrations are written once, for both engines, and mean the same on both.
Integers have 64 bits, text is as long as it is and is compared by its code points: the same order,
the same ranges, whatever the locale of the database. The lengths in the tables are for the reader.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Integer, String
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.asyncpg import (
    AsyncpgString,
    PGCompiler_asyncpg,
    PGDialect_asyncpg,
)
from sqlalchemy.dialects.postgresql.base import PGTypeCompiler

from perdure.store.plain_text import StorableText


class _Text(StorableText, AsyncpgString):
    """Text as it is bound."""


class _TypeCompiler(PGTypeCompiler):
    def visit_INTEGER(self, type_: Any, **options: Any) -> str:
        return "BIGINT"

    def visit_VARCHAR(self, type_: Any, **options: Any) -> str:
        return self.visit_TEXT(type_, **options)

    def visit_TEXT(self, type_: Any, **options: Any) -> str:
        # Of a column that is made, not of a value that is cast.
        return 'TEXT COLLATE "C"' if isinstance(options.get("type_expression"), Column) else "TEXT"


class _Compiler(PGCompiler_asyncpg):
    def visit_sum_func(self, function: Any, **options: Any) -> str:
        """PostgreSQL's sum of 64-bit integers is a decimal number."""
        summed = f"sum{self.function_argspec(function, **options)}"
        return f"CAST({summed} AS BIGINT)" if isinstance(function.type, Integer) else summed


_TYPES = {**PGDialect_asyncpg.colspecs, Integer: BigInteger, String: _Text}


class PerdurePostgreSQL(PGDialect_asyncpg):
    """See the module."""

    supports_statement_cache = True
    # The server finds out what number a parameter is: what asks it of its own tables knows others.
    type_compiler_cls = _TypeCompiler
    statement_compiler = _Compiler
    colspecs = _TYPES


registry.register("postgresql.perdure", __name__, PerdurePostgreSQL.__name__)
