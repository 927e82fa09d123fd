"""Messages of other sessions that may not come in: dropped, and whoever waits is told.

Invariant: it works beside the turn, so nobody waits for an answer that will not come until a busy
session has time. What is not told yet is carried into the next run.
"""

from __future__ import annotations

import asyncio

from temporalio import workflow

from activities.stubs import ExchangeActivities
from perdure.domain.envelopes import Envelope
from perdure.domain.steps import RefusedMessage
from workflows.state import SessionState
from workflows.stored import write


class Refusals:
    """Tells of what one session has refused, over its carried state."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._resting = True
        self._work: asyncio.Task[None] | None = None

    def add(self, envelope: Envelope, reason: str) -> None:
        """Refuse a message that was announced."""
        workflow.logger.warning("refused %s: %s", envelope.message_id, reason)
        self._state.refused.append(
            RefusedMessage(
                session_key=self._state.session_key,
                message_id=envelope.message_id,
                exchange=envelope.exchange,
                reason=reason,
            )
        )
        self._begin()

    def open(self) -> None:
        """Begin, or go on after a rest."""
        self._resting = False
        self._begin()

    async def rest(self) -> None:
        """Finish what is under way and do nothing more until `open`."""
        self._resting = True
        if self._work is not None:
            await asyncio.wait([self._work])

    def _begin(self) -> None:
        idle = self._work is None or self._work.done()
        if self._state.refused and idle and not self._resting:
            self._work = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        while self._state.refused and not self._resting:
            refused = self._state.refused[0]
            await write(ExchangeActivities.refuse, refused, "refuse a message")
            self._state.refused.remove(refused)
