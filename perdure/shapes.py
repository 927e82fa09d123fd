"""The shapes in which sessions are shown, as the session tools define them.

Invariant: these are views of the store's rows; nothing here is stored.
"""

from __future__ import annotations

from datetime import datetime

from perdure.config import Settings
from perdure.domain.keys import Kind
from perdure.domain.labels import Label, can_flow
from perdure.domain.messages import Frozen
from perdure.domain.states import SessionState
from perdure.store.session_views import SessionFigures
from perdure.store.sessions import SessionRow
from perdure.store.transcript import HistoryMessage, HistoryPage

#: What stands for the words of a message that may not be read where they are asked for.
ABOVE = "[withheld: this message is {}]"


class Tokens(Frozen):
    """Tokens of a session."""

    input: int
    output: int
    total: int


class SessionStatus(Frozen):
    """A session in figures: the result of `session_status`. Times in UTC, cost in US dollars."""

    session_key: str
    agent: str
    model: str
    kind: Kind
    state: SessionState
    label: Label
    clearance: Label
    channel: str | None
    user: str
    turns: int
    steps: int
    tokens: Tokens
    cost: float | None
    started_at: datetime
    duration_ms: int
    children: int
    pending: int


class SessionSummary(Frozen):
    """A session in a list: an item of `sessions_list`."""

    session_key: str
    agent: str
    kind: Kind
    channel: str | None
    user: str
    state: SessionState
    label: Label
    message_count: int
    last_activity: datetime
    created_at: datetime


class SessionList(Frozen):
    """One page of sessions, last active first, and how many there are in all."""

    sessions: tuple[SessionSummary, ...]
    total: int


def status_of(figures: SessionFigures, settings: Settings) -> SessionStatus:
    """A session's figures, with what its agent's settings add."""
    row = figures.row
    agent = settings.agents.get(row.agent)
    usage = row.usage
    return SessionStatus(
        **row.model_dump(
            include={"session_key", "agent", "kind", "state", "label", "channel", "user", "cost"}
        ),
        model=", ".join(agent.models) if agent else "",
        clearance=agent.clearance if agent else row.label,
        turns=row.turn,
        steps=row.step_count,
        tokens=Tokens(
            input=usage.input_tokens,
            output=usage.output_tokens,
            total=usage.input_tokens + usage.output_tokens,
        ),
        cost=usage.cost,
        started_at=row.created_at,
        duration_ms=int((row.last_activity - row.created_at).total_seconds() * 1000),
        children=figures.children,
        pending=figures.pending,
    )


def summary_of(row: SessionRow) -> SessionSummary:
    """A session as a line of a list."""
    return SessionSummary(**row.model_dump(include=set(SessionSummary.model_fields)))


def readable(page: HistoryPage, level: Label) -> HistoryPage:
    """The page as a place of `level` may read it: what is above has no words and no calls."""
    return page.model_copy(
        update={"messages": tuple(readable_message(message, level) for message in page.messages)}
    )


def readable_message(message: HistoryMessage, level: Label) -> HistoryMessage:
    """One message as a place of `level` may read it."""
    if can_flow(message.label, level):
        return message
    return message.model_copy(update={"text": ABOVE.format(message.label), "tool_calls": ()})
