"""A store under the hands of someone else, as no code of ours would treat it."""

from __future__ import annotations

import asyncio
import sqlite3

import asyncpg

from perdure.store import Database


async def damage(database: Database, *statements: str) -> None:
    """Change a store behind its back, no foreign key heeded."""
    if database.url.drivername == "sqlite":
        await asyncio.to_thread(_change_file, database.url.database or "", statements)
        return
    connection = await asyncpg.connect(database.url.render_as_string(hide_password=False))
    for statement in statements:
        try:
            await connection.execute(statement)
        except asyncpg.ForeignKeyViolationError:
            # Neither keys nor triggers are heeded then.
            await connection.execute("SET session_replication_role = replica")
            await connection.execute(statement)
            await connection.execute("SET session_replication_role = DEFAULT")
    await connection.close()


def _change_file(path: str, statements: tuple[str, ...]) -> None:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
