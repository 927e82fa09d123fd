"""The crew: says, waits and strikes for whoever directs, and keeps account of it.

Invariant: it kills only processes of its own stack, and every wait has an end.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from typing import Protocol

from gateway.client import SessionClient
from gateway.demo.evidence import Kill
from gateway.demo.ledger import Ledger
from gateway.live import LiveItem, LiveSession
from gateway.local import Stack, StackInfo
from perdure.domain.errors import TimedOut, Unavailable
from perdure.domain.states import TURN_ENDS, EventKind
from perdure.store.outbox import Event


class Narrator(Protocol):
    """Who tells what happens, as it happens."""

    def ready(self, info: StackInfo) -> None:
        """Everything runs."""

    def chapter(self, title: str) -> None:
        """A part of the story begins."""

    def note(self, text: str) -> None:
        """Something happened beside the conversation."""

    def asked(self, session_key: str, text: str, sender: str | None) -> None:
        """A session takes this message; what it does follows as items. `sender` is the session
        that it came from, None for a person."""

    def item(self, session_key: str, item: LiveItem) -> None:
        """Something happened in a session that is shown."""

    def beside(self, name: str, item: LiveItem) -> None:
        """Somebody who is called `name` did something meanwhile."""


class Crew:
    """One performance's hands. `patience` is the longest wait for one thing, in seconds."""

    def __init__(
        self, stack: Stack, client: SessionClient, narrator: Narrator, patience: float
    ) -> None:
        self.stack = stack
        self.client = client
        self.tell = narrator
        self.ledger = Ledger(client)
        self.kills: list[Kill] = []
        #: What a model gave no occasion for, and why.
        self.left_out: list[str] = []
        self._patience = patience
        #: Set for a message when the end of its turn was told to the narrator.
        self._told: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    # Watching --------------------------------------------------------------------------------

    async def watch(self, session_key: str, *, after: int = 0) -> None:
        """Tell the narrator what happens in a session from a cursor on, for ever."""
        async with LiveSession(self.client.store, session_key, after=after) as live:
            async for item in live:
                if item.type == "turn_started":
                    await self._tell_message(session_key, item.message_id)
                self.tell.item(session_key, item)
                if item.type == "turn_ended":
                    self._told[item.result.message_id].set()

    async def watch_beside(self, session_key: str, name: str) -> None:
        """Tell the narrator in short what happens in a session, for ever."""
        async with LiveSession(self.client.store, session_key, after=0) as live:
            async for item in live:
                self.tell.beside(name, item)

    async def _tell_message(self, session_key: str, message_id: str) -> None:
        message = await self.client.store.transcript.message(session_key, message_id)
        if message is not None:
            self.tell.asked(session_key, message.text, message.from_session)

    # Saying ----------------------------------------------------------------------------------

    async def say(self, text: str, session_key: str) -> str:
        """Send an agent a task, and once more, as if the first had gone unheard."""
        message_id = await self.ledger.send(session_key, text)
        return await self.ledger.send(session_key, text, message_id)

    async def answered(self, message_id: str, session_key: str, *, told: bool = True) -> None:
        """Wait until a message is answered, and the answer told if the session is watched."""
        async with self.patience(f"there was no answer to {message_id}"):
            await self.client.wait(session_key, message_id)
            if told:
                await self._told[message_id].wait()

    async def turn_of(self, message_id: str, session_key: str) -> int:
        """The turn that takes a message, once it does."""
        started = await self._first(
            session_key,
            lambda e: e.kind is EventKind.TURN_STARTED and e.payload["message_id"] == message_id,
            f"{message_id} was not taken",
        )
        assert started.turn is not None, "the start of a turn names it"
        return started.turn

    async def event_or_end(
        self, kind: EventKind, *, session_key: str, turn: int, step: int = 1
    ) -> Event | None:
        """The first event of a kind in a turn, from a step on; None when the turn ends without."""
        found = await self._first(
            session_key,
            lambda e: (
                e.turn == turn
                and (e.kind in TURN_ENDS or (e.kind is kind and (e.step or 0) >= step))
            ),
            f"neither {kind} nor the end of turn {turn} came",
        )
        return found if found.kind is kind else None

    async def _first(
        self, session_key: str, wanted: Callable[[Event], bool], otherwise: str
    ) -> Event:
        async with (
            self.patience(otherwise),
            aclosing(self.client.store.outbox.follow(session_key, 0)) as events,
        ):
            async for event in events:
                if wanted(event):
                    return event
        raise AssertionError("an outbox never ends")

    @asynccontextmanager
    async def patience(self, otherwise: str) -> AsyncIterator[None]:
        """Bound a wait.

        Raises:
            TimedOut: saying what did not happen.
        """
        try:
            async with asyncio.timeout(self._patience):
                yield
        except TimeoutError:
            raise TimedOut(f"Within {self._patience:g} s {otherwise}.") from None

    # Killing ---------------------------------------------------------------------------------

    @property
    def worker(self) -> int | None:
        """The worker's process, while there is one."""
        return next(iter(self.stack.info.pids.workers), None)

    def strike(self, pid: int | None, whom: str) -> datetime:
        """SIGKILL, and tell it; when it was.

        Raises:
            Unavailable: when there is nothing to kill.
        """
        if pid is None:
            raise Unavailable("The process that was to be killed does not run.")
        os.kill(pid, signal.SIGKILL)
        self.tell.note(f"✗ SIGKILL for {whom}")
        return datetime.now(UTC)

    def killed(self, what: str, began: datetime, ended: datetime, cut: Sequence[str]) -> None:
        """Note who was killed, and the sessions whose work was cut."""
        self.kills.append(Kill(what=what, began=began, ended=ended, session_keys=tuple(cut)))


async def moment(event: Event, seconds: float) -> None:
    """Wait until `seconds` after an event."""
    passed = (datetime.now(UTC) - event.at).total_seconds()
    await asyncio.sleep(max(0.0, seconds - passed))
