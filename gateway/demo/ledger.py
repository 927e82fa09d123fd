"""The ledger: every message that the demo has sent, and how often.

Invariant: a message stands in the ledger from before its first send, and whoever sends it goes on
until it is confirmed. So what the ledger holds must be answered, each once.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from gateway.client import SessionClient
from gateway.demo.cast import AGENTS
from gateway.demo.evidence import Sent
from perdure.domain.errors import Unavailable
from perdure.domain.ids import new_message_id

#: Seconds between two tries of a message that Temporal did not confirm.
_RETRY_PAUSE = 0.2


class Ledger:
    """Sends messages and remembers them."""

    def __init__(self, client: SessionClient) -> None:
        self._client = client
        self._sent: dict[str, Sent] = {}

    @property
    def sent(self) -> tuple[Sent, ...]:
        """Every message, in the order of their first sends."""
        return tuple(self._sent.values())

    async def send(self, session_key: str, text: str, message_id: str | None = None) -> str:
        """Send as a careful client does: again, with the same id, until it is confirmed.

        Args:
            session_key: to whom.
            text: what.
            message_id: of a message that is sent once more; None for a new one.
        """
        message_id = message_id or new_message_id()
        while True:
            known = self._sent.get(message_id)
            self._sent[message_id] = Sent(
                session_key=session_key,
                message_id=message_id,
                text=text,
                times=1 if known is None else known.times + 1,
            )
            with suppress(Unavailable):
                await self._client.send(
                    session_key, text, agent=AGENTS.get(session_key), message_id=message_id
                )
                return message_id
            await asyncio.sleep(_RETRY_PAUSE)
