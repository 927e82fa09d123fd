"""The scene of the lead and its researchers: spawned, cut by a kill, steered, killed, spawned anew.

Invariant: runs are looked after as anybody would, through `SessionClient.runs` and through the
lead's own tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from activities.steering import Replaced
from gateway.demo.cast import HUNG, LEAD, STEADY, STRAY, name_of
from gateway.demo.crew import Crew
from gateway.demo.directives import words_of
from gateway.demo.story import Story
from gateway.demo.tools import posted
from perdure.domain.runs import RunStatus
from perdure.domain.states import EventKind, TurnState
from perdure.store.outbox import Event
from perdure.store.runs import Run


class Delegating:
    """The scene on one stack; `workspace` is the lead's."""

    def __init__(self, crew: Crew, story: Story, workspace: Path) -> None:
        self._crew = crew
        self._story = story
        self._workspace = workspace
        #: Every run that has begun, in that order.
        self._runs: dict[str, Run] = {}

    # Watching --------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Tell what becomes of the lead's runs, for ever."""
        store = self._crew.client.store
        async with (
            asyncio.TaskGroup() as watching,
            aclosing(store.outbox.follow(LEAD, 0)) as events,
        ):
            async for event in events:
                if event.kind is EventKind.RUN_STARTED:
                    run = await store.runs.get(event.payload["run_id"])
                    name = _name(run)
                    watching.create_task(self._crew.watch_beside(run.session_key, name))
                    self._runs[run.run_id] = run
                self._tell(event)

    def _tell(self, event: Event) -> None:
        run = self._runs.get(event.payload.get("run_id", ""))
        if run is None:
            return
        match event.kind:
            case EventKind.RUN_STARTED:
                how = "begins" if run.follows is None else "goes on with that"
                self._crew.tell.note(f"{_name(run)} {how}: {run.run_id}")
            case EventKind.RUN_ENDED:
                self._crew.tell.note(f"{_name(run)} has ended: {event.payload['reason']}")

    async def under_way(self) -> tuple[str, ...]:
        """The sessions of the runs that are under way."""
        found = await self._crew.client.runs.list(LEAD)
        return tuple(run.session_key for run in found.runs if run.status is RunStatus.RUNNING)

    # Acts ------------------------------------------------------------------------------------

    async def spawn(self) -> None:
        """Have three documents read, and kill the worker under all that is done."""
        message = await self._crew.say(self._story.delegate, LEAD)
        await self._cut(message)
        await self._crew.answered(message, LEAD)

    async def _cut(self, message_id: str) -> None:
        """Kill the worker when the notice is posted and its tool has not reported yet."""
        crew = self._crew
        if not await self._comes(message_id, lambda: bool(posted(self._workspace)), "a notice"):
            crew.left_out.append("the kill during a tool: the model did not call it")
            return
        children = await self.under_way()
        for key in children:
            await crew.event_or_end(EventKind.STEP_STARTED, session_key=key, turn=1)
        crew.tell.note(
            f"{len(children)} researchers are in model calls; the notice is on the board, and its "
            "tool has not reported yet"
        )
        at = crew.strike(crew.worker, "the worker")
        crew.killed("the worker, in model calls and tools", at, at, (LEAD, *children))

    async def _comes(self, message_id: str, wanted: Callable[[], bool], what: str) -> bool:
        """Wait until something is there; False when the lead's turn is over before it is."""
        transcript = self._crew.client.store.transcript
        async with self._crew.patience(f"{what} did not come"):
            while not wanted():
                turn = await transcript.turn_of(LEAD, message_id)
                if turn is not None and turn.state is not TurnState.RUNNING:
                    return wanted()
                await asyncio.sleep(0.05)
        return True

    async def redirect(self) -> str | None:
        """Steer one run, and have the lead kill another and spawn it anew; the message that asks
        for it, None when there are not all three."""
        chosen = {document: self._newest(document) for document in (STEADY, STRAY, HUNG)}
        missing = [document for document, run in chosen.items() if run is None]
        if missing:
            self._crew.left_out.append(f"the report: no run was given {', '.join(missing)}")
            return None
        ids = {document: run.run_id for document, run in chosen.items() if run is not None}
        ids[STRAY] = await self._steer(ids[STRAY])
        told = self._story.assembling(steady=ids[STEADY], stray=ids[STRAY], hung=ids[HUNG])
        return await self._crew.say(told, LEAD)

    async def _steer(self, run_id: str) -> str:
        """Steer a run as `perdure steer` does; the run that goes on."""
        words = words_of(self._story.steering)
        self._crew.tell.note(f"a person steers {_name(self._runs[run_id])}: {words}")
        answer = await self._crew.client.runs.steer(run_id, self._story.steering, by="director")
        if isinstance(answer, Replaced):
            return answer.new_run_id
        self._crew.left_out.append("the steering: the run had ended")
        return run_id

    async def spawned_anew(self, message_id: str) -> str | None:
        """The session of the run that takes the place of the one that hung, once it began."""
        if not await self._comes(message_id, lambda: len(self._of(HUNG)) > 1, "the new run"):
            self._crew.left_out.append("the kill of everything: the lead spawned no run anew")
            return None
        return self._of(HUNG)[-1].session_key

    def _of(self, document: str) -> list[Run]:
        return [run for run in self._runs.values() if document in _documents(run)]

    def _newest(self, document: str) -> Run | None:
        found = self._of(document)
        return found[-1] if found else None


def _documents(run: Run) -> list[str]:
    return [artifact.path for artifact in run.packet.artifacts]


def _name(run: Run) -> str:
    return name_of(next(iter(_documents(run)), run.agent))
