"""Sessions that delegate: what a lead is told to do, and what became of its runs."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from sqlalchemy import select, update

from perdure.domain.delegation import UpkeepReport
from perdure.domain.runs import RunState
from perdure.domain.states import EventKind, TurnState
from perdure.store.clock import now
from perdure.store.delegation_tables import runs as runs_table
from perdure.store.delegation_tables import waits as waits_table
from perdure.store.runs import Run, run_of
from perdure.store.transcript import HistoryMessage, TurnResult
from tests.support import watching
from tests.support.stack import Stack, fresh_key, until
from workflows.upkeep import Upkeep

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


async def answered(stack: Stack, key: str, run: Run) -> TurnResult:
    """The turn that a session took for the result of a run, once it has ended."""
    found: list[TurnResult] = []

    async def ended() -> bool:
        turn = await stack.client.store.transcript.turn_of(key, f"result_{run.run_id}")
        if turn is not None and turn.state is not TurnState.RUNNING:
            found.append(turn)
        return bool(found)

    await until(ended, TIMEOUT)
    return found[0]


async def upkeep(stack: Stack) -> UpkeepReport:
    """One round of upkeep."""
    return await stack.client.temporal.execute_workflow(
        Upkeep.run, id=fresh_key("upkeep"), task_queue=stack.settings.temporal.queue
    )


async def age(stack: Stack, run: Run) -> None:
    """As if a run had begun, and ended if it has, an hour ago."""
    hour = timedelta(hours=1)
    times = {"started_at": now() - hour}
    if run.ended_at is not None:
        times["ended_at"] = run.ended_at - hour
    query = update(runs_table).where(runs_table.c.run_id == run.run_id).values(times)
    await stack.client.store.database.write(lambda connection: connection.execute(query).close())


def open_gate(stack: Stack, run: Run) -> None:
    """Let a run go on that waits in `tests.support.user_tools:late`."""
    folder = watching.workspace(stack, run.session_key)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "gate").touch()
