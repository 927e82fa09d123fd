"""The director: sends the messages, strikes when it is worst, waits until all is answered.

Invariant: it kills only processes of its own stack, and never mends what it killed: that is the
stack's supervisor's work, as it is in any `perdure up`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Protocol

from temporalio.service import RPCError

from gateway.client import SessionClient
from gateway.demo.evidence import Evidence, Kill, gather
from gateway.demo.ledger import Ledger
from gateway.demo.stage import AGENT, workspace_of
from gateway.demo.story import LEAD, VISITOR, story_for
from gateway.demo.tools import posted
from gateway.live import LiveItem, LiveSession
from gateway.local import Stack, StackInfo
from gateway.local.readiness import until
from gateway.workflows import workflow_id
from perdure.config import Settings
from perdure.domain.errors import PerdureError, TimedOut, Unavailable
from perdure.domain.states import EventKind, TurnState
from perdure.store.outbox import Event
from perdure.tools import Effect
from perdure.tools.catalogue import select

#: Every so many of the visitor's questions is sent a second time, as by a client that never heard
#: that the first one came through.
_SENT_AGAIN = 3


class Narrator(Protocol):
    """Who tells what happens, as it happens."""

    def ready(self, info: StackInfo) -> None:
        """Everything runs."""

    def chapter(self, title: str) -> None:
        """A part of the story begins."""

    def note(self, text: str) -> None:
        """Something happened beside the conversation."""

    def asked(self, text: str) -> None:
        """The lead agent takes this message; what it does follows as items."""

    def item(self, item: LiveItem) -> None:
        """The lead agent did something."""


class Director:
    """One performance, on a stack that runs."""

    def __init__(
        self, settings: Settings, stack: Stack, client: SessionClient, narrator: Narrator
    ) -> None:
        agent = settings.agent(AGENT)
        self._story = story_for(agent.models)
        self._specs = select(agent.tools).specs
        self._workspace = workspace_of(settings.home)
        self._stack = stack
        self._client = client
        self._narrator = narrator
        self._ledger = Ledger(client)
        self._kills: list[Kill] = []
        self._enough = asyncio.Event()
        #: Set for a message when the end of its turn was told to the narrator.
        self._told: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        #: Kills for which there was no occasion, and why.
        self.left_out: list[str] = []

    async def direct(self) -> str | None:
        """Tell the story; why it did not come to its end, or None."""
        watching = asyncio.create_task(self._watch())
        visiting = asyncio.create_task(self._visit())
        problem = None
        try:
            await self._tell()
            self._enough.set()
            # What the visitor is sending just now is sent to the end: it stands in the ledger.
            await visiting
            await self._settle()
        except (PerdureError, RPCError) as error:
            problem = str(error)
        finally:
            for task in (visiting, watching):
                task.cancel()
            await asyncio.gather(visiting, watching, return_exceptions=True)
        for task in (visiting, watching):
            if problem is None and not task.cancelled():
                task.result()
        return problem

    async def gather(self) -> Evidence:
        """What can be found out about everything that was sent."""
        return await gather(
            self._client,
            sent=self._ledger.sent,
            kills=self._kills,
            notices=posted(self._workspace),
            once=[name for name, spec in self._specs.items() if spec.effect is Effect.ONCE],
        )

    # The story -------------------------------------------------------------------------------

    async def _tell(self) -> None:
        story, tell = self._story, self._narrator
        tell.chapter("The agent looks around and writes a guide")
        await self._answered(await self._say(story.look))
        await self._answered(await self._say(story.guide))

        tell.chapter("The worker is killed in the middle of a model call")
        reading = await self._say(story.reading)
        await self._cut_model_call(await self._turn_of(reading))
        await self._answered(reading)
        await self._tell_of_visitor()

        tell.chapter("The worker is killed in the middle of two tool calls")
        notice = await self._say(story.notice)
        await self._cut_tools(notice)
        await self._answered(notice)
        await self._tell_of_visitor()

        tell.chapter("Temporal is killed in the middle of a model call")
        answer = await self._say(story.answer)
        await self._cut_everything(await self._turn_of(answer))
        last = await self._say(story.last)
        await self._answered(answer)
        await self._answered(last)
        await self._tell_of_visitor()

    async def _cut_model_call(self, turn: int) -> None:
        call = await self._event(EventKind.STEP_STARTED, turn=turn)
        await _moment(call, self._story.kill_after)
        self._strike(self._worker)
        self._killed("the worker, in the middle of a model call")

    async def _cut_tools(self, message_id: str) -> None:
        """Kill the worker when the notice is posted and its tool has not reported yet."""
        before = len(posted(self._workspace))
        async with self._patience("no notice was posted"):
            while len(posted(self._workspace)) == before:
                turn = await self._client.store.transcript.turn_of(LEAD, message_id)
                if turn is not None and turn.state is not TurnState.RUNNING:
                    self.left_out.append("the kill during a tool: the model did not call it")
                    return
                await asyncio.sleep(0.05)
        self._narrator.note("the notice is on the board, and its tool has not reported yet")
        await asyncio.sleep(0.5)
        self._strike(self._worker)
        self._killed("the worker, between a tool's effect and its report")

    async def _cut_everything(self, turn: int) -> None:
        """Kill Temporal in a model call, and the worker when it has nobody to report it to."""
        call = await self._event(EventKind.STEP_STARTED, turn=turn)
        await _moment(call, self._story.outage_after)
        began = datetime.now(UTC)
        server = self._stack.info.pids.temporal
        self._strike(server)
        self._narrator.note("✗ SIGKILL for Temporal, in the middle of a model call")
        struck = datetime.now(UTC)
        committed = asyncio.create_task(self._event(EventKind.STEP_COMPLETED, turn=turn))
        back = asyncio.create_task(self._temporal_is_back(server))
        done, _ = await asyncio.wait({committed, back}, return_when=asyncio.FIRST_COMPLETED)
        for task in (committed, back):
            task.cancel()
        await asyncio.gather(committed, back, return_exceptions=True)
        what = "Temporal, in the middle of a model call"
        if committed in done:
            self._narrator.note("the answer is in the store: it can be read while Temporal is down")
            self._strike(self._worker)
            self._narrator.note("✗ SIGKILL for the worker, before it can report the answer")
            what = "Temporal in a model call, then the worker before it could report the answer"
            struck = datetime.now(UTC)
        self._kills.append(Kill(what=what, began=began, ended=struck))

    async def _temporal_is_back(self, killed: int | None) -> None:
        async with self._patience("Temporal did not come back"):
            await until(lambda: self._serves(killed))

    async def _serves(self, killed: int | None) -> bool:
        if self._stack.info.pids.temporal in (None, killed):
            return False
        try:
            return await self._client.temporal.service_client.check_health()
        except RPCError:
            return False

    async def _visit(self) -> None:
        """Ask one question after the other, whatever is down just now."""
        number = 0
        while not self._enough.is_set():
            number += 1
            question = self._story.question_of(number)
            message_id = await self._ledger.send(VISITOR, question)
            if number % _SENT_AGAIN == 0:
                await self._ledger.send(VISITOR, question, message_id)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._enough.wait(), self._story.pause)

    async def _tell_of_visitor(self) -> None:
        asked = sum(each.session_key == VISITOR for each in self._ledger.sent)
        status = await self._client.status(VISITOR)
        self._narrator.note(
            f"meanwhile in another session, {VISITOR}: {asked} questions asked, "
            f"{status.turns} turns begun"
        )

    async def _watch(self) -> None:
        async with LiveSession(self._client.store, LEAD, after=0) as live:
            async for item in live:
                if item.type == "turn_started":
                    self._narrator.asked(self._ledger.text_of(item.message_id))
                self._narrator.item(item)
                if item.type == "turn_ended":
                    self._told[item.result.message_id].set()

    # Waiting ---------------------------------------------------------------------------------

    async def _say(self, text: str) -> str:
        """Send the lead agent a task, and once more, as if the first had gone unheard."""
        message_id = await self._ledger.send(LEAD, text)
        return await self._ledger.send(LEAD, text, message_id)

    async def _answered(self, message_id: str) -> None:
        async with self._patience(f"there was no answer to {message_id}"):
            await self._client.wait(LEAD, message_id)
            await self._told[message_id].wait()

    async def _settle(self) -> None:
        """Wait until all that was sent is answered, and Temporal's history has caught up."""
        async with self._patience("not everything was answered"):
            for each in self._ledger.sent:
                await self._client.wait(each.session_key, each.message_id)
            await until(self._idle)

    async def _idle(self) -> bool:
        """Whether neither session does anything, by Temporal's word."""
        handles = [
            self._client.temporal.get_workflow_handle(workflow_id(key)) for key in (LEAD, VISITOR)
        ]
        return all([(await handle.query("status"))["state"] == "idle" for handle in handles])

    async def _turn_of(self, message_id: str) -> int:
        started = await self._event(EventKind.TURN_STARTED, message_id=message_id)
        assert started.turn is not None, "the start of a turn names it"
        return started.turn

    async def _event(
        self, kind: EventKind, *, turn: int | None = None, message_id: str | None = None
    ) -> Event:
        """The lead session's first event of a kind, of a turn or about a message."""
        async with (
            self._patience(f"there was no {kind} of {message_id or f'turn {turn}'}"),
            aclosing(self._client.store.outbox.follow(LEAD, 0)) as events,
        ):
            async for event in events:
                about = message_id is None or event.payload.get("message_id") == message_id
                if event.kind is kind and about and turn in (None, event.turn):
                    return event
        raise AssertionError("an outbox never ends")

    @asynccontextmanager
    async def _patience(self, otherwise: str) -> AsyncIterator[None]:
        """Bound a wait.

        Raises:
            TimedOut: saying what did not happen.
        """
        try:
            async with asyncio.timeout(self._story.patience):
                yield
        except TimeoutError:
            raise TimedOut(f"Within {self._story.patience:g} s {otherwise}.") from None

    # Killing ---------------------------------------------------------------------------------

    @property
    def _worker(self) -> int | None:
        return next(iter(self._stack.info.pids.workers), None)

    def _strike(self, pid: int | None) -> None:
        if pid is None:
            raise Unavailable("The process that was to be killed does not run.")
        os.kill(pid, signal.SIGKILL)

    def _killed(self, what: str) -> None:
        now = datetime.now(UTC)
        self._kills.append(Kill(what=what, began=now, ended=now))
        self._narrator.note(f"✗ SIGKILL for {what}")


async def _moment(event: Event, seconds: float) -> None:
    """Wait until `seconds` after an event."""
    passed = (datetime.now(UTC) - event.at).total_seconds()
    await asyncio.sleep(max(0.0, seconds - passed))
