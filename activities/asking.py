"""A question to a model beside the conversation: to condense, to summarise.

Invariant: it is asked under the session's label, as policy allows it, and what was decided is
recorded before anything is sent.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from perdure.domain.errors import Denied
from perdure.domain.labels import Label
from perdure.domain.messages import Message, Role
from perdure.domain.steps import StepRequest
from perdure.guard import Guard
from perdure.models import Answer, ModelChain, Piece, Prompt
from perdure.policy.hooks import Action
from perdure.store import Store

_GOES_ON = (Action.ALLOW, Action.REDACT)


class Asker:
    """Asks the models of an agent."""

    def __init__(self, store: Store, guard: Guard) -> None:
        self._store = store
        self._guard = guard

    async def ask(
        self,
        *,
        session_key: str,
        agent: str,
        models: tuple[str, ...],
        label: Label,
        question: str,
        instructions: str,
        turn: int = 0,
    ) -> Answer:
        """The answer to a question that holds what is at `label`.

        Raises:
            Denied: when policy, or the clearance of the provider, forbids it.
            ModelFailure: when there is no answer.
        """
        request = StepRequest(
            session_key=session_key,
            agent=agent,
            turn=turn,
            step=0,
            message_id="",
            label=label,
        )
        asked = await asyncio.to_thread(self._guard.invocation, request, models)
        await self._store.record(*(self._guard.entry(decision, request) for decision in asked))
        refused = next((one for one in asked if not one.goes_on), None)
        if refused is not None:
            raise Denied(refused.reason, f"Decided by {refused.decided_by}.")
        message = Message(
            id="question", seq=1, turn=0, role=Role.USER, text=question, at=datetime.now(UTC)
        )
        messages, entries = self._guard.context(request, (message,))
        if entries:
            await self._store.record(*entries)
        withheld = next((one for one in entries if one.decision not in _GOES_ON), None)
        if withheld is not None:
            # An answer to what is left of the question would be taken for one to the question.
            raise Denied(withheld.reason, f"Decided by {withheld.decided_by}.")
        prompt = Prompt(instructions=instructions, transcript=messages)
        return await ModelChain(models).answer(prompt, _unheard)


async def _unheard(piece: Piece) -> None:
    """Nobody listens to it while it is written."""
