"""The long conversation: something is dictated all the while, and its beginning is asked for last.

Invariant: whoever dictates goes on whatever is down just now, so the conversation goes through
every kill of the demo.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from gateway.demo.cast import ARCHIVE
from gateway.demo.crew import Crew
from gateway.demo.recollection import Recollection, gather_recollection
from gateway.demo.story import Story

#: Every so many messages one is sent a second time, as by a client that never heard that the first
#: came through.
_SENT_AGAIN = 3
#: Seconds between two messages that are only sent to come deep enough.
_PAUSE = 0.2
#: So many summaries stand on each other above the first message when it is asked for.
DEPTHS = 3


class Dictation:
    """Dictates `texts`, one after the other and again from the first."""

    def __init__(self, crew: Crew, story: Story, texts: Sequence[str]) -> None:
        self._crew = crew
        self._story = story
        self._texts = texts
        self._number = 0
        self._enough = asyncio.Event()

    async def go_on(self) -> None:
        """Dictate until it is enough."""
        while not self._enough.is_set():
            await self._next()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._enough.wait(), self._story.pause)

    def stop(self) -> None:
        """Send to the end what is being sent, and nothing more."""
        self._enough.set()

    async def _next(self) -> str:
        text = self._story.kept(self._number + 1, self._texts[self._number % len(self._texts)])
        self._number += 1
        message_id = await self._crew.ledger.send(ARCHIVE, text)
        if self._number % _SENT_AGAIN == 0:
            await self._crew.ledger.send(ARCHIVE, text, message_id)
        return message_id

    async def tell(self) -> None:
        """How far it has come."""
        status = await self._crew.client.status(ARCHIVE)
        self._crew.tell.note(
            f"meanwhile, to {ARCHIVE}: {self._number} things were dictated, {status.turns} kept"
        )

    async def recall(self) -> None:
        """Ask for what was dictated first, when it lies deep enough."""
        crew = self._crew
        async with crew.patience(f"the first message did not come under {DEPTHS} summaries"):
            found = await self._deep()
        crew.tell.note(
            f"{found.messages} messages: {found.raw} are read as they are, the others lie under "
            f"{found.summaries} summaries, of which {found.in_context} are read; above the first "
            f"message there are {found.depths_above_the_first}"
        )
        newest = await crew.client.store.outbox.newest_id()
        watching = asyncio.create_task(crew.watch(ARCHIVE, after=newest))
        try:
            await crew.answered(await crew.say(self._story.recall, ARCHIVE), ARCHIVE)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _deep(self) -> Recollection:
        while True:
            found = await gather_recollection(self._crew.client.store)
            if found.depths_above_the_first >= DEPTHS:
                return found
            await self._crew.answered(await self._next(), ARCHIVE, told=False)
            # Summaries are made beside the turns: they may come meanwhile.
            await asyncio.sleep(_PAUSE)
