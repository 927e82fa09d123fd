"""The text of a model call while it arrives: kept for an interrupt, shown to who listens.

Invariant: at most one small write every `BATCH` seconds, and none while nobody listens. Only text
that would be let out as an answer is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from perdure.domain.steps import StepRequest
from perdure.models import Piece
from perdure.store import Store

#: Seconds between two written batches.
BATCH = 0.1
#: Seconds between two looks for a listener while there is none.
LOOK = 0.5


class Stream:
    """Collects the text of one attempt of one step."""

    def __init__(
        self,
        store: Store,
        request: StepRequest,
        attempt: int,
        releasable: Callable[[str], int],
    ) -> None:
        self._store = store
        self._request = request
        self._attempt = attempt
        self._releasable = releasable
        self._restarts = 0
        self._written = 0
        #: Everything received so far: what an interrupted turn keeps.
        self.text = ""

    async def take(self, piece: Piece) -> None:
        """Receive a piece."""
        if piece.restart:
            # Another model of the chain begins anew: what the failed one said is not the answer.
            self.text = ""
            self._written = 0
            self._restarts += 1
        self.text += piece.text

    @asynccontextmanager
    async def flowing(self) -> AsyncIterator[None]:
        """Write what arrives during the block, batch by batch, while someone listens."""
        flow = asyncio.create_task(self._flow(), name="deltas")
        try:
            yield
        finally:
            flow.cancel()
            await asyncio.gather(flow, return_exceptions=True)

    async def _flow(self) -> None:
        deltas = self._store.deltas
        while True:
            if not await deltas.listened(self._request.session_key):
                await asyncio.sleep(LOOK)
                continue
            for _ in range(int(LOOK / BATCH)):
                await asyncio.sleep(BATCH)
                text = self.text
                end = await asyncio.to_thread(self._releasable, text) if text else 0
                unsent = text[self._written : end]
                if unsent and text == self.text[: len(text)]:
                    self._written = end
                    # Fewer than a hundred models stand in a chain.
                    generation = self._attempt * 100 + self._restarts
                    await deltas.write(self._request, generation, unsent)
