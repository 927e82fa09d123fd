"""The director: has the messages sent, strikes when it is worst, waits until all is answered.

Invariant: it never mends what it killed: that is the stack's supervisor's work, as it is in any
`perdure up`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from temporalio.service import RPCError

from activities.post import workflow_id
from gateway.client import SessionClient
from gateway.demo import outage, settling, telling
from gateway.demo.cast import AGENTS, CLERK, EDITOR, LEAD, PRINTER
from gateway.demo.crew import Crew, Narrator
from gateway.demo.delegating import Delegating
from gateway.demo.dictating import Dictation
from gateway.demo.evidence import Evidence, gather
from gateway.demo.stage import SECRET, dictation, story_for, workspace_of
from gateway.demo.tools import posted
from gateway.local import Stack
from gateway.local.readiness import until
from perdure.config import Settings
from perdure.domain.errors import PerdureError
from perdure.tools import Effect
from perdure.tools.catalogue import select


class Director:
    """One performance, on a stack that runs."""

    def __init__(
        self, settings: Settings, stack: Stack, client: SessionClient, narrator: Narrator
    ) -> None:
        self._story = story_for(settings)
        self._specs = select(settings.agent(AGENTS[LEAD]).tools).specs
        self._workspace = workspace_of(settings.home)
        self._client = client
        self._crew = Crew(stack, client, narrator, self._story.patience)
        self._delegating = Delegating(self._crew, self._story, self._workspace)
        self._dictation = Dictation(self._crew, self._story, dictation())

    @property
    def left_out(self) -> list[str]:
        """What there was no occasion for, and why."""
        return self._crew.left_out

    async def direct(self) -> str | None:
        """Tell the story; why it did not come to its end, or None."""
        beside: list[Coroutine[Any, Any, None]] = [
            *(self._crew.watch(key) for key in (LEAD, CLERK)),
            *(self._crew.watch_beside(key, key.partition(":")[2]) for key in (EDITOR, PRINTER)),
            self._delegating.watch(),
        ]
        tasks = [asyncio.create_task(each) for each in beside]
        dictating = asyncio.create_task(self._dictation.go_on())
        problem = None
        try:
            await self._tell()
            # What is being dictated just now is sent to the end: it stands in the ledger.
            self._dictation.stop()
            await dictating
            self._crew.tell.chapter("What was said first is asked for last")
            await self._dictation.recall()
            await self._settle()
        except (PerdureError, RPCError) as error:
            problem = str(error)
        finally:
            for task in (dictating, *tasks):
                task.cancel()
            await asyncio.gather(dictating, *tasks, return_exceptions=True)
        for task in (dictating, *tasks):
            # Whoever watches and breaks is the cause of whatever came to no end.
            if not task.cancelled():
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
            rehearsed=self._story.settling is not None,
        )

    async def _tell(self) -> None:
        crew, story, delegating = self._crew, self._story, self._delegating
        crew.tell.chapter("A lead has three researchers, and the worker dies under all of them")
        await delegating.spawn()
        await self._dictation.tell()

        crew.tell.chapter("An agent that knows a secret may not tell it, and a person is asked")
        await telling.refuse(crew, story)
        asked, approval = await telling.ask(crew, story)

        crew.tell.chapter("One run is steered, one is killed and spawned anew; then Temporal dies")

        async def at_work() -> tuple[str, ...]:
            return (LEAD, CLERK, *await delegating.under_way())

        report = await delegating.redirect()
        fatal = await delegating.spawned_anew(report) if report is not None else None
        if fatal is not None:
            await outage.strike(crew, story, fatal, at_work)
        if approval is not None:
            await telling.decide(crew, approval)
        await crew.answered(asked, CLERK)
        if report is not None:
            await crew.answered(report, LEAD)
        await self._dictation.tell()

        if story.settling is None:
            crew.left_out.append("the exchange of agents: it needs the rehearsal model")
            return
        crew.tell.chapter("Two agents settle a date, and a third would close the ring")
        await settling.play(crew, story.settling)

    async def _settle(self) -> None:
        """Wait until all that was sent is answered, and Temporal's history has caught up."""
        async with self._crew.patience("not everything was answered"):
            for each in self._crew.ledger.sent:
                await self._client.wait(each.session_key, each.message_id)
            await until(self._idle)

    async def _idle(self) -> bool:
        """Whether no session does anything, by Temporal's word."""
        keys = {each.session_key for each in self._crew.ledger.sent}
        handles = [self._client.temporal.get_workflow_handle(workflow_id(key)) for key in keys]
        return all([(await handle.query("status"))["state"] == "idle" for handle in handles])
