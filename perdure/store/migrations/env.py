"""Alembic runs inside `Database.open`, on the connection it is handed; there is no offline mode."""

from __future__ import annotations

from alembic import context

from perdure.store.search_tables import is_described
from perdure.store.tables import metadata

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=True,
    include_name=is_described,
)
with context.begin_transaction():
    context.run_migrations()
