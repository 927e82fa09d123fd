"""Short writes to a session's own rows.

Invariant: each is one transaction and does nothing the second time.
"""

from __future__ import annotations

from typing import Any

from temporalio import activity

from perdure.config import AgentSettings, Settings
from perdure.domain.steps import (
    OpenSession,
    SessionClose,
    SessionProfile,
    SessionReset,
    TurnEnd,
)
from perdure.store import Store


class SessionWrites:
    """`SessionActivities`, over the store and the settings."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self._settings = settings
        self._store = store

    @activity.defn
    async def open_session(self, request: OpenSession) -> SessionProfile:
        """The session's past from the store, and its limits from the settings."""
        opened = await self._store.sessions.open(request)
        agent = self._settings.agents.get(opened.agent)
        limits = self._settings.limits
        return SessionProfile(
            agent=opened.agent,
            turn=opened.turn,
            label=opened.label,
            pending=opened.pending,
            # An agent that is no longer configured fails its turns, not its session.
            **({} if agent is None else _known(agent)),
            inbox_limit=limits.inbox,
            turns_per_run=limits.turns_per_run,
            step_attempts=limits.step_attempts,
            step_timeout=limits.step_timeout,
            run=opened.run,
            runs=opened.runs,
        )

    @activity.defn
    async def end_turn(self, end: TurnEnd) -> None:
        """End a turn that came to no answer, with its reason in the transcript."""
        await self._store.turns.end_turn(end)

    @activity.defn
    async def reset_session(self, request: SessionReset) -> None:
        """Begin a new epoch of the session."""
        await self._store.sessions.reset(request)

    @activity.defn
    async def close_session(self, request: SessionClose) -> None:
        """Mark the session closed."""
        await self._store.sessions.close(request.session_key)


def _known(agent: AgentSettings) -> dict[str, Any]:
    return {
        "clearance": agent.clearance,
        "intake": agent.intake,
        "remembers": agent.memory_auto,
    }
