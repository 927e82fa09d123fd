"""Sessions that delegate: what a lead is told to do, and what became of its runs."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import select

from perdure.domain.runs import RunState
from perdure.domain.states import EventKind
from perdure.store.delegation_tables import runs as runs_table
from perdure.store.delegation_tables import waits as waits_table
from perdure.store.runs import Run, run_of
from perdure.store.transcript import HistoryMessage, TurnResult
from tests.support import watching
from tests.support.stack import Stack, until

TIMEOUT = 90


def call(tool: str, **arguments: Any) -> str:
    """A directive of the rehearsal model that calls a tool."""
    return f"/{tool} {json.dumps(arguments)}"


def spawn(*task: str, later: bool = False, **arguments: Any) -> str:
    """A directive that spawns a run with the lines of `task`; `later` is the argument `async`."""
    if later:
        arguments["async"] = True
    # References in a task are the child's own.
    text = "\n".join(task).replace("{{", r"\{{")
    return call("sessions_spawn", task=text, **arguments)


def subagents(action: str, **arguments: Any) -> str:
    """A directive that looks after runs."""
    return call("subagents", action=action, **arguments)


async def ask(stack: Stack, key: str, *lines: str, **more: Any) -> TurnResult:
    """Ask with a script. `---` begins a new step."""
    return await stack.client.ask(key, "\n".join(lines), timeout=TIMEOUT, **more)


async def results(stack: Stack, key: str) -> list[Any]:
    """A session's tool results, in order, as what their JSON says."""
    return [json.loads(text) for text in await watching.results(stack, key)]


async def runs(stack: Stack, key: str) -> list[Run]:
    """The runs that a session has spawned, oldest first."""
    query = select(runs_table).where(runs_table.c.parent_key == key)
    query = query.order_by(runs_table.c.queued_at, runs_table.c.run_id)
    return await stack.client.store.database.read(
        lambda connection: [run_of(row) for row in connection.execute(query)]
    )


async def have(stack: Stack, key: str, state: RunState, count: int = 1) -> list[Run]:
    """The runs of a session in a state, once there are `count`."""
    found: list[Run] = []

    async def enough() -> bool:
        found[:] = [run for run in await runs(stack, key) if run.state is state]
        return len(found) >= count

    await until(enough, TIMEOUT)
    return found


async def all_handed(stack: Stack, key: str, count: int = 1) -> list[Run]:
    """The runs of a session, once there are `count` and nothing is to be done for any."""
    found: list[Run] = []

    async def settled() -> bool:
        found[:] = await runs(stack, key)
        return len(found) >= count and all(run.handed_at is not None for run in found)

    await until(settled, TIMEOUT)
    return found


async def working(stack: Stack, key: str, count: int = 1) -> list[Run]:
    """The runs of a session, once `count` have begun a model call."""
    found: list[Run] = []

    async def begun() -> bool:
        found[:] = [
            run
            for run in await runs(stack, key)
            if await watching.events(stack, run.session_key, EventKind.STEP_STARTED)
        ]
        return len(found) >= count

    await until(begun, TIMEOUT)
    return found


async def messages(stack: Stack, key: str, start: str = "result_") -> list[HistoryMessage]:
    """The messages of a transcript whose ids begin so: by default, results handed over."""
    return [m for m in await watching.transcript(stack, key) if m.id.startswith(start)]


async def kept(stack: Stack, key: str) -> list[tuple[str, str]]:
    """The results that a session was told are kept: the run, and why."""
    told = await watching.events(stack, key, EventKind.RUN_KEPT)
    return [(event.payload["run_id"], event.payload["reason"]) for event in told]


async def waiting_for(stack: Stack, run: Run) -> list[str]:
    """The sessions that have a call which waits for a run."""
    query = select(waits_table.c.session_key).where(waits_table.c.target_key == run.session_key)
    return await stack.client.store.database.read(
        lambda connection: list(connection.scalars(query))
    )
