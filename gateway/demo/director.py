"""The director: has the messages sent, strikes when it is worst, waits until all is answered.

Invariant: it never mends what it killed: that is the stack's supervisor's work, as it is in any
`perdure up`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime

from temporalio.service import RPCError

from activities.post import workflow_id
from gateway.client import SessionClient
from gateway.demo import secret
from gateway.demo.crew import Crew, Narrator
from gateway.demo.evidence import Evidence, Kill, gather
from gateway.demo.stage import AGENT, SECRET, workspace_of
from gateway.demo.story import CLERK, LEAD, VISITOR, story_for
from gateway.demo.tools import posted
from gateway.local import Stack
from gateway.local.readiness import until
from perdure.config import Settings
from perdure.domain.errors import PerdureError
from perdure.domain.states import EventKind, TurnState
from perdure.store.outbox import Event
from perdure.tools import Effect
from perdure.tools.catalogue import select

#: Every so many of the visitor's questions is sent a second time, as by a client that never heard
#: that the first one came through.
_SENT_AGAIN = 3


class Director:
    """One performance, on a stack that runs."""

    def __init__(
        self, settings: Settings, stack: Stack, client: SessionClient, narrator: Narrator
    ) -> None:
        agent = settings.agent(AGENT)
        self._story = story_for(agent.models)
        self._specs = select(agent.tools).specs
        self._workspace = workspace_of(settings.home)
        self._client = client
        self._crew = Crew(stack, client, narrator, self._story.patience)
        self._enough = asyncio.Event()

    @property
    def left_out(self) -> list[str]:
        """What there was no occasion for, and why."""
        return self._crew.left_out

    async def direct(self) -> str | None:
        """Tell the story; why it did not come to its end, or None."""
        watching = [asyncio.create_task(self._crew.watch(key)) for key in (LEAD, CLERK)]
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
            for task in (visiting, *watching):
                task.cancel()
            await asyncio.gather(visiting, *watching, return_exceptions=True)
        for task in (visiting, *watching):
            if problem is None and not task.cancelled():
                task.result()
        return problem

    async def gather(self) -> Evidence:
        """What can be found out about everything that was sent."""
        return await gather(
            self._client,
            sent=self._crew.ledger.sent,
            kills=self._crew.kills,
            notices=posted(self._workspace),
            once=[name for name, spec in self._specs.items() if spec.effect is Effect.ONCE],
            secret=SECRET,
        )

    # The story -------------------------------------------------------------------------------

    async def _tell(self) -> None:
        story, crew = self._story, self._crew
        crew.tell.chapter("The agent looks around and writes a guide")
        await crew.answered(await crew.say(story.look))
        await crew.answered(await crew.say(story.guide))

        crew.tell.chapter("The worker is killed in the middle of a model call")
        reading = await crew.say(story.reading)
        await self._cut_model_call(await crew.turn_of(reading))
        await crew.answered(reading)
        await self._tell_of_visitor()

        crew.tell.chapter("The worker is killed in the middle of two tool calls")
        notice = await crew.say(story.notice)
        await self._cut_tools(notice)
        await crew.answered(notice)
        await self._tell_of_visitor()

        crew.tell.chapter("Temporal is killed in the middle of a model call")
        answer = await crew.say(story.answer)
        await self._cut_everything(await crew.turn_of(answer))
        last = await crew.say(story.last)
        await crew.answered(answer)
        await crew.answered(last)
        await self._tell_of_visitor()

        crew.tell.chapter("An agent that knows a secret may not tell it, and a person decides")
        await secret.play(crew, story)
        await self._tell_of_visitor()

    async def _cut_model_call(self, turn: int) -> None:
        call = await self._crew.event(EventKind.STEP_STARTED, turn=turn)
        await _moment(call, self._story.kill_after)
        self._crew.kill_worker("in the middle of a model call")

    async def _cut_tools(self, message_id: str) -> None:
        """Kill the worker when the notice is posted and its tool has not reported yet."""
        before = len(posted(self._workspace))
        async with self._crew.patience("no notice was posted"):
            while len(posted(self._workspace)) == before:
                turn = await self._client.store.transcript.turn_of(LEAD, message_id)
                if turn is not None and turn.state is not TurnState.RUNNING:
                    self._crew.left_out.append("the kill during a tool: the model did not call it")
                    return
                await asyncio.sleep(0.05)
        self._crew.tell.note("the notice is on the board, and its tool has not reported yet")
        await asyncio.sleep(0.5)
        self._crew.kill_worker("between a tool's effect and its report")

    async def _cut_everything(self, turn: int) -> None:
        """Kill Temporal in a model call, and the worker when it has nobody to report it to."""
        call = await self._crew.event(EventKind.STEP_STARTED, turn=turn)
        await _moment(call, self._story.outage_after)
        began = datetime.now(UTC)
        server = self._crew.stack.info.pids.temporal
        self._crew.strike(server)
        self._crew.tell.note("✗ SIGKILL for Temporal, in the middle of a model call")
        struck = datetime.now(UTC)
        committed = asyncio.create_task(self._crew.event(EventKind.STEP_COMPLETED, turn=turn))
        back = asyncio.create_task(self._temporal_is_back(server))
        done, _ = await asyncio.wait({committed, back}, return_when=asyncio.FIRST_COMPLETED)
        for task in (committed, back):
            task.cancel()
        await asyncio.gather(committed, back, return_exceptions=True)
        what = "Temporal, in the middle of a model call"
        if committed in done:
            told = "the answer is in the store: it can be read while Temporal is down"
            self._crew.tell.note(told)
            self._crew.strike(self._crew.worker)
            self._crew.tell.note("✗ SIGKILL for the worker, before it can report the answer")
            what = "Temporal in a model call, then the worker before it could report the answer"
            struck = datetime.now(UTC)
        self._crew.kills.append(Kill(what=what, began=began, ended=struck))

    async def _temporal_is_back(self, killed: int | None) -> None:
        async with self._crew.patience("Temporal did not come back"):
            await until(lambda: self._serves(killed))

    async def _serves(self, killed: int | None) -> bool:
        if self._crew.stack.info.pids.temporal in (None, killed):
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
            message_id = await self._crew.ledger.send(VISITOR, question)
            if number % _SENT_AGAIN == 0:
                await self._crew.ledger.send(VISITOR, question, message_id)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._enough.wait(), self._story.pause)

    async def _tell_of_visitor(self) -> None:
        asked = sum(each.session_key == VISITOR for each in self._crew.ledger.sent)
        status = await self._client.status(VISITOR)
        self._crew.tell.note(
            f"meanwhile in another session, {VISITOR}: {asked} questions asked, "
            f"{status.turns} turns begun"
        )

    async def _settle(self) -> None:
        """Wait until all that was sent is answered, and Temporal's history has caught up."""
        async with self._crew.patience("not everything was answered"):
            for each in self._crew.ledger.sent:
                await self._client.wait(each.session_key, each.message_id)
            await until(self._idle)

    async def _idle(self) -> bool:
        """Whether no session does anything, by Temporal's word."""
        handles = [
            self._client.temporal.get_workflow_handle(workflow_id(key))
            for key in (LEAD, VISITOR, CLERK)
        ]
        return all([(await handle.query("status"))["state"] == "idle" for handle in handles])


async def _moment(event: Event, seconds: float) -> None:
    """Wait until `seconds` after an event."""
    passed = (datetime.now(UTC) - event.at).total_seconds()
    await asyncio.sleep(max(0.0, seconds - passed))
