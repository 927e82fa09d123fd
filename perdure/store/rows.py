"""From rows to the facts they hold.

Invariant: no checks, since rows were checked when they were written and a context has hundreds.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row

from perdure.context.summaries import Summary
from perdure.domain.labels import Label
from perdure.domain.messages import Message, Role, ToolCall
from perdure.store.context_tables import FOREVER


def message_of(row: Row[Any]) -> Message:
    """The message that a row of `messages` holds."""
    return Message.model_construct(
        id=row.id,
        seq=row.seq,
        turn=row.turn,
        step=row.step,
        role=Role(row.role),
        text=row.text,
        tool_calls=tuple(ToolCall.model_construct(**call) for call in row.tool_calls),
        tool_call_id=row.tool_call_id,
        tool_name=row.tool_name,
        from_session=row.from_session,
        label=Label(row.label),
        tokens=row.tokens,
        at=row.at,
        raw=row.raw,
        exchange=row.exchange,
        aside=row.aside,
    )


def summary_of(row: Row[Any]) -> Summary:
    """The summary that a row of `summaries` holds."""
    return Summary.model_construct(
        id=row.id,
        session_key=row.session_key,
        epoch=row.epoch,
        depth=row.depth,
        first_seq=row.first_seq,
        last_seq=row.last_seq,
        messages=row.messages,
        text=row.text,
        tokens=row.tokens,
        source_tokens=row.source_tokens,
        label=Label(row.label),
        earliest_at=row.earliest_at,
        latest_at=row.latest_at,
        fallback=row.fallback,
        from_turn=row.from_turn,
        until_turn=None if row.until_turn == FOREVER else row.until_turn,
    )
