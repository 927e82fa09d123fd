"""The schema of the database, brought up to date.

Invariant: what is current is not touched, and costs a look at one row: Alembic takes longer to load
than a command takes to run, and is loaded only where it has something to do.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, column, inspect, select, table

_MIGRATIONS = Path(__file__).parent / "migrations"
#: Revisions are numbered; the highest is what the tables describe.
_NEWEST = max(path.name[:4] for path in (_MIGRATIONS / "versions").glob("[0-9]*.py"))

_VERSION = table("alembic_version", column("version_num"))


def bring_up_to_date(connection: Connection) -> None:
    """Run the migrations that the database has not seen, in the transaction of `connection` if it
    has one, else in their own."""
    begun = connection.in_transaction()
    version = None
    if inspect(connection).has_table(_VERSION.name):
        version = connection.scalar(select(_VERSION.c.version_num))
    if not begun:
        connection.rollback()
    if version != _NEWEST:
        _upgrade(connection)


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
