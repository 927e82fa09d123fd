"""Summaries of what searches found, kept so that a model is asked once.

Invariant: a summary belongs to one message and one question, and what it took is counted in the
session that asked, in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, insert, select, tuple_

from perdure.domain.messages import Frozen, Usage
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.search_tables import search_summaries
from perdure.store.session_writer import SessionWriter


class HitSummary(Frozen):
    """A summary of one message with regard to one question, of which `query` is a digest."""

    session_key: str
    message_id: str
    query: str
    summary: str
    model: str


class SearchSummaries:
    """The summaries of hits."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def known(
        self, query: str, messages: Sequence[tuple[str, str]]
    ) -> dict[tuple[str, str], str]:
        """The summaries there are of messages, each named by its session's key and its id."""
        return await self._database.read(_known, query, messages)

    async def keep(self, session_key: str, summary: HitSummary, usage: Usage) -> None:
        """Keep a summary that this session asked for; one that is kept already stays."""
        await self._database.write(_keep, session_key, summary, usage)


def _known(
    connection: Connection, query: str, messages: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], str]:
    table = search_summaries.c
    rows = connection.execute(
        select(table.session_key, table.message_id, table.summary).where(
            table.query == query, tuple_(table.session_key, table.message_id).in_(messages)
        )
    )
    return {(row.session_key, row.message_id): row.summary for row in rows}


def _keep(connection: Connection, session_key: str, summary: HitSummary, usage: Usage) -> None:
    message = (summary.session_key, summary.message_id)
    if message not in _known(connection, summary.query, [message]):
        connection.execute(insert(search_summaries).values(**summary.model_dump(), at=now()))
    with SessionWriter(connection, session_key) as session:
        before = Usage(
            input_tokens=session.row.input_tokens,
            output_tokens=session.row.output_tokens,
            cost=session.row.cost,
        )
        session.change(**(before + usage).model_dump())
