"""Reading transcripts: by page, and by turn.

Invariant: a transcript is read in `seq` order and never rewritten; a reset only moves the
point from which the context begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from perdure.domain.labels import Label
from perdure.domain.messages import Frozen, Role, ToolCall, Usage
from perdure.domain.states import ToolStatus, TurnState
from perdure.store.database import Database
from perdure.store.tables import messages, sessions, steps, tool_claims, turns


class HistoryMessage(Frozen):
    """A message as `sessions_history` shows it."""

    id: str
    seq: int
    role: Role
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    from_session: str | None = None
    label: Label
    at: datetime


class HistoryPage(Frozen):
    """One page of a transcript: newest page first, each page in order."""

    session_key: str
    messages: tuple[HistoryMessage, ...]
    total: int
    has_more: bool


class ToolUse(Frozen):
    """A tool call of a turn and what became of it; no status while it runs."""

    name: str
    status: ToolStatus | None


class TurnResult(Frozen):
    """What a turn came to: the shape of `perdure ask --json`, with its state and error."""

    message_id: str
    session_key: str
    turn: int
    state: TurnState
    text: str
    label: Label
    steps: int
    tools: tuple[ToolUse, ...]
    usage: Usage
    error: dict[str, Any] | None = None


# Statements are built once: building them anew costs more than running them.
_TURN_OF = (
    select(turns, messages.c.text, messages.c.label)
    .outerjoin(
        messages,
        (messages.c.session_key == turns.c.session_key) & (messages.c.id == turns.c.answer_id),
    )
    .where(turns.c.session_key == bindparam("key"), turns.c.message_id == bindparam("id"))
)
_STEPS_OF = (
    select(steps, messages.c.tool_calls)
    .join(
        messages,
        (messages.c.session_key == steps.c.session_key) & (messages.c.seq == steps.c.message_seq),
    )
    .where(steps.c.session_key == bindparam("key"), steps.c.turn == bindparam("of_turn"))
    .order_by(steps.c.step)
)


class Transcript:
    """Read-only views of what was said."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(
        self, session_key: str, limit: int, offset: int, before: int | None = None
    ) -> HistoryPage:
        """The `limit` messages that end `offset` messages before the newest, or, of those before
        the sequence number `before`, before the newest of these."""
        return await self._database.read(page_of, session_key, limit, offset, before)

    async def message(self, session_key: str, message_id: str) -> HistoryMessage | None:
        """One message, or None when the transcript does not have it."""
        return await self._database.read(_message_of, session_key, message_id)

    async def turn_of(self, session_key: str, message_id: str) -> TurnResult | None:
        """What the turn of a message came to so far; None when no turn has taken it yet."""
        return await self._database.read(_turn_of, session_key, message_id)


def page_of(
    connection: Connection, session_key: str, limit: int, offset: int, before: int | None = None
) -> HistoryPage:
    """One page of a transcript; see `Transcript.page`."""
    query = (
        select(messages)
        .where(messages.c.session_key == session_key)
        .order_by(messages.c.seq.desc())
        .limit(limit + 1)
        .offset(offset)
    )
    if before is not None:
        query = query.where(messages.c.seq < before)
    rows = connection.execute(query).all()
    # Counted as they were written: a long transcript is not read to be counted.
    total = connection.scalar(
        select(sessions.c.message_count).where(sessions.c.session_key == session_key)
    )
    return HistoryPage(
        session_key=session_key,
        messages=tuple(_shown(row) for row in reversed(rows[:limit])),
        total=total or 0,
        has_more=len(rows) > limit,
    )


def _message_of(connection: Connection, session_key: str, message_id: str) -> HistoryMessage | None:
    row = connection.execute(
        select(messages).where(messages.c.session_key == session_key, messages.c.id == message_id)
    ).one_or_none()
    return None if row is None else _shown(row)


def _turn_of(connection: Connection, session_key: str, message_id: str) -> TurnResult | None:
    key = {"key": session_key}
    turn = connection.execute(_TURN_OF, {**key, "id": message_id}).one_or_none()
    if turn is None:
        return None
    made = connection.execute(_STEPS_OF, {**key, "of_turn": turn.turn}).all()
    usage = Usage()
    for step in made:
        usage += Usage(
            input_tokens=step.input_tokens, output_tokens=step.output_tokens, cost=step.cost
        )
    return TurnResult(
        message_id=message_id,
        session_key=session_key,
        turn=turn.turn,
        state=turn.state,
        text=turn.text or "",
        label=turn.label or Label.PUBLIC,
        steps=len(made),
        tools=_tools(connection, made),
        usage=usage,
        error=turn.error,
    )


def _tools(connection: Connection, made: Sequence[Row[Any]]) -> tuple[ToolUse, ...]:
    if not any(step.tool_calls for step in made):
        return ()
    sealed = {
        (row.step, row.call): row.status
        for row in connection.execute(
            select(tool_claims).where(
                tool_claims.c.session_key == made[0].session_key,
                tool_claims.c.turn == made[0].turn,
            )
        )
    }
    return tuple(
        ToolUse(name=call["name"], status=sealed.get((step.step, position)))
        for step in made
        for position, call in enumerate(step.tool_calls)
    )


def _shown(row: Row[Any]) -> HistoryMessage:
    fields = {name: getattr(row, name) for name in HistoryMessage.model_fields}
    return HistoryMessage.model_validate(fields)
