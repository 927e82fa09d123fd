"""How a transcript grows and a session's row changes, inside a transaction.

Invariant: sequence numbers rise by one a message, with one kept free for each tool call's result,
so that results stand behind their call in call order whichever comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, insert, select, update

from perdure.context import message_tokens
from perdure.domain.messages import ToolCall
from perdure.store.clock import now
from perdure.store.tables import messages, sessions


def append(
    connection: Connection,
    session_key: str,
    *,
    text: str,
    tool_calls: Sequence[ToolCall] = (),
    **message: Any,
) -> int:
    """Append a message to a transcript; returns its sequence number."""
    session = connection.execute(
        select(sessions.c.next_seq, sessions.c.epoch).where(sessions.c.session_key == session_key)
    ).one()
    connection.execute(
        insert(messages).values(
            session_key=session_key,
            seq=session.next_seq,
            epoch=session.epoch,
            text=text,
            tokens=message_tokens(text, tool_calls),
            tool_calls=[call.model_dump(mode="json") for call in tool_calls],
            at=now(),
            **message,
        )
    )
    change(
        connection,
        session_key,
        next_seq=session.next_seq + 1 + len(tool_calls),
        message_count=sessions.c.message_count + 1,
    )
    return int(session.next_seq)


def change(connection: Connection, session_key: str, **values: Any) -> None:
    """Change columns of a session's row, and note its activity."""
    connection.execute(
        update(sessions)
        .where(sessions.c.session_key == session_key)
        .values(last_activity=now(), **values)
    )
