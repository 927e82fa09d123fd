"""`Session`: a conversation that a person, a program or another session has begun.

Invariant: it stays open until it is closed, and a message opens it again.
"""

from __future__ import annotations

from temporalio import workflow

from workflows.conversation import Conversation
from workflows.state import SessionState


@workflow.defn
class Session(Conversation):
    """One session."""

    @workflow.init
    def __init__(self, state: SessionState) -> None:
        super().__init__(state)

    @workflow.run
    async def run(self, state: SessionState) -> None:
        """Answer messages until closed."""
        await self.converse()
