"""The crew: says, waits and strikes for whoever directs, and keeps account of it.

Invariant: it kills only processes of its own stack, and every wait has an end.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from typing import Protocol

from gateway.client import SessionClient
from gateway.demo.evidence import Kill
from gateway.demo.ledger import Ledger
from gateway.demo.story import LEAD
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

    def asked(self, text: str) -> None:
        """The agent of the chapter takes this message; what it does follows as items."""

    def item(self, item: LiveItem) -> None:
        """The agent did something."""


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

    async def watch(self, session_key: str) -> None:
        """Tell the narrator what happens in a session, for ever."""
        async with LiveSession(self.client.store, session_key, after=0) as live:
            async for item in live:
                if item.type == "turn_started":
                    self.tell.asked(self.ledger.text_of(item.message_id))
                self.tell.item(item)
                if item.type == "turn_ended":
                    self._told[item.result.message_id].set()

    async def say(self, text: str, session_key: str = LEAD) -> str:
        """Send an agent a task, and once more, as if the first had gone unheard."""
        message_id = await self.ledger.send(session_key, text)
        return await self.ledger.send(session_key, text, message_id)

    async def answered(self, message_id: str, session_key: str = LEAD) -> None:
        """Wait until a message is answered, and the answer told."""
        async with self.patience(f"there was no answer to {message_id}"):
            await self.client.wait(session_key, message_id)
            await self._told[message_id].wait()

    async def turn_of(self, message_id: str, session_key: str = LEAD) -> int:
        """The turn that takes a message, once it does."""
        started = await self._first(
            session_key,
            lambda e: e.kind is EventKind.TURN_STARTED and e.payload["message_id"] == message_id,
            f"{message_id} was not taken",
        )
        assert started.turn is not None, "the start of a turn names it"
        return started.turn

    async def event(self, kind: EventKind, *, turn: int) -> Event:
        """The first event of a kind in a turn of the lead session."""
        return await self._first(
            LEAD, lambda e: e.kind is kind and e.turn == turn, f"there was no {kind} of turn {turn}"
        )

    async def event_or_end(self, kind: EventKind, *, session_key: str, turn: int) -> Event | None:
        """The first event of a kind in a turn; None when the turn ends without one."""
        wanted = {kind} | TURN_ENDS
        found = await self._first(
            session_key,
            lambda e: e.turn == turn and e.kind in wanted,
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

    @property
    def worker(self) -> int | None:
        """The worker's process, while there is one."""
        return next(iter(self.stack.info.pids.workers), None)

    def strike(self, pid: int | None) -> None:
        """SIGKILL.

        Raises:
            Unavailable: when there is nothing to kill.
        """
        if pid is None:
            raise Unavailable("The process that was to be killed does not run.")
        os.kill(pid, signal.SIGKILL)

    def kill_worker(self, how: str, session_key: str = LEAD) -> None:
        """Strike the worker, note it and tell it; `how` says when, and whose work it cut."""
        self.strike(self.worker)
        now = datetime.now(UTC)
        what = f"the worker, {how}"
        self.kills.append(Kill(what=what, began=now, ended=now, session_key=session_key))
        self.tell.note(f"✗ SIGKILL for {what}")
