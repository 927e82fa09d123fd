"""The scene in which everything dies: Temporal in model calls, and the worker behind it.

Invariant: nothing is mended here: that is the stack's supervisor's work, as it is in any
`perdure up`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from temporalio.service import RPCError

from gateway.demo.crew import Crew, moment
from gateway.demo.story import Story
from gateway.local.readiness import until
from perdure.domain.states import EventKind


async def strike(
    crew: Crew, story: Story, session_key: str, at_work: Callable[[], Awaitable[Sequence[str]]]
) -> None:
    """Kill Temporal in a model call of a session, and the worker when it has nobody to report the
    answer to. `at_work` tells the sessions that are at work."""
    call = await crew.event_or_end(
        EventKind.STEP_STARTED, session_key=session_key, turn=1, step=story.fatal_step
    )
    if call is None or call.step is None:
        crew.left_out.append("the kill of Temporal in a model call: the run was too quick")
        return
    await moment(call, story.outage_after)
    cut = await at_work()
    server = crew.stack.info.pids.temporal
    began = ended = crew.strike(server, "Temporal")
    what = "Temporal, in model calls"
    committed = asyncio.create_task(
        crew.event_or_end(EventKind.STEP_COMPLETED, session_key=session_key, turn=1, step=call.step)
    )
    back = asyncio.create_task(_is_back(crew, server))
    done, _ = await asyncio.wait({committed, back}, return_when=asyncio.FIRST_COMPLETED)
    for task in (committed, back):
        task.cancel()
    await asyncio.gather(committed, back, return_exceptions=True)
    if committed in done:
        crew.tell.note("an answer is in the store: it can be read while Temporal is down")
        ended = crew.strike(crew.worker, "the worker, before it can report that answer")
        what = "Temporal in model calls, then the worker before it could report an answer"
    crew.killed(what, began, ended, cut)


async def _is_back(crew: Crew, killed: int | None) -> None:
    async def serves() -> bool:
        if crew.stack.info.pids.temporal in (None, killed):
            return False
        try:
            return await crew.client.temporal.service_client.check_health()
        except RPCError:
            return False

    async with crew.patience("Temporal did not come back"):
        await until(serves)
