"""`perdure subagents`, `steer`, `kill`, `result`: the runs below a session, taken in hand.

Invariant: a run is named by its id, as the list shows it whole; and what stops work asks a person
first.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.look import reading
from gateway.cli.manage import Yes, confirm, with_client
from gateway.cli.options import AsJson, Home, Key
from gateway.cli.output import console, note, print_json
from gateway.cli.talk import Words, message_of

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from perdure.delegation.results import RunResult
    from perdure.store.run_views import RunList, RunView

app = typer.Typer()

RunId = Annotated[
    str, typer.Argument(metavar="RUN", help="The run, as lists show it.", show_default=False)
]
RecentMinutes = Annotated[
    float | None,
    typer.Option("--recent-minutes", min=0, help="Leave out runs that ended longer ago."),
]


@app.command()
def subagents(
    key: Key,
    home: Home = None,
    as_json: AsJson = False,
    recent_minutes: RecentMinutes = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=200, help="How many.")] = 50,
    offset: Annotated[int, typer.Option("--offset", min=0, help="How many to skip.")] = 0,
) -> None:
    """List the runs below a session, at every depth, each after the one that spawned it."""

    async def read() -> RunList:
        async with reading(home) as client:
            await client.status(key)
            return await client.runs.list(
                key, recent_minutes=recent_minutes, limit=limit, offset=offset
            )

    page = asyncio.run(read())
    if as_json:
        print_json(page)
        return
    out = console()
    for run in page.runs:
        _print_run(out, run)
    seen = offset + len(page.runs)
    if not page.total:
        recent = "" if recent_minutes is None else " that is recent"
        out.print(f"There is no run{recent} below {key}.")
    elif offset or seen < page.total:
        out.print(f"{offset + 1}–{seen} of {page.total}", style="dim")
    if seen < page.total:
        same = "" if recent_minutes is None else f" --recent-minutes {recent_minutes:g}"
        out.print(f"More: perdure subagents {key}{same} --offset {seen}", style="dim")


@app.command()
def steer(run_id: RunId, text: Words = None, home: Home = None, as_json: AsJson = False) -> None:
    """Tell a run what to do instead, or as well: as steer_inject of its agent says.

    Exit code 1 when it is not under way: then nothing happens.
    """
    from activities.steering import Injected, NotRunning
    from gateway.cli.words import run_state

    words = message_of(text)
    steered = asyncio.run(with_client(home, lambda client: client.runs.steer(run_id, words)))
    if as_json:
        print_json(steered)
    elif isinstance(steered, NotRunning):
        state = run_state(steered.status, steered.end_reason)
        console().print(f"{steered.run_id} is {state}; nothing was done.")
    elif isinstance(steered, Injected):
        console().print(f"{steered.run_id} takes it in at its next step.")
    else:
        console().print(f"{steered.old_run_id} ends; {steered.new_run_id} begins in its place.")
    if isinstance(steered, NotRunning):
        raise typer.Exit(1)


@app.command()
def kill(run_id: RunId, home: Home = None, as_json: AsJson = False, yes: Yes = False) -> None:
    """Stop a run and all below it. What they have committed is kept."""
    from gateway.cli.words import plural

    confirm(yes, f"Stop {run_id} and all runs below it?")
    killed = asyncio.run(with_client(home, lambda client: client.runs.kill(run_id)))
    if as_json:
        print_json(killed)
    elif not killed.killed:
        console().print(f"{run_id} has ended before: {killed.status}.")
    else:
        below = f", with {plural(killed.descendants, 'run')} below it" if killed.descendants else ""
        state = "has ended" if killed.status == "killed" else "is stopping"
        console().print(f"{run_id} {state}{below}.")


@app.command()
def result(
    run_id: RunId,
    home: Home = None,
    as_json: AsJson = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the run has ended.")] = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=0,
            help="How long to wait; else for ever. Exit code 124 when there is no result by then.",
        ),
    ] = None,
) -> None:
    """Print what a run came to, as its parent reads it; of a steered run, what its successor did.

    The whole answer lies in a file, which is named. Exit code 124 when the run has not ended, 1
    when it was not completed.
    """
    wait = wait or timeout is not None

    async def read() -> tuple[RunResult, Path | None]:
        async with reading(home) as client:
            found = await client.runs.result(run_id, wait=wait, timeout=timeout)
            return found, await client.runs.full_result(found.run_id)

    found, path = asyncio.run(read())
    if as_json:
        whole = None if path is None else str(path)
        print_json(found.model_dump(mode="json") | {"full_result": whole})
    else:
        _print_result(found, path)
    if found.status != "completed":
        raise typer.Exit(1)


def _print_run(out: Console, run: RunView) -> None:
    from gateway.cli.words import duration, one_line, plural, printable, run_state

    parts = [
        run_state(run.status, run.end_reason),
        f"step {run.step} of {run.max_steps}",
        *([] if run.last_tool is None else [f"last {run.last_tool}"]),
        plural(run.tokens, "token"),
        duration(run.runtime_ms / 1_000),
        f"depth {run.depth}",
    ]
    out.print(f"{run.run_id} · {printable(' · '.join(parts))}", style="bold")
    out.print(f"  {one_line(run.task, 200)}")
    out.print(f"  session {printable(run.session_key)}")
    out.print()


def _print_result(result: RunResult, path: Path | None) -> None:
    from gateway.cli.words import dollars, duration, plural, printable, run_state

    shown = sys.stdout.isatty()
    print(printable(result.response) if shown else result.response, flush=True)
    stats = result.stats
    parts = [
        f"{result.run_id} is {run_state(result.status, result.end_reason)}",
        plural(stats.steps, "step"),
        plural(stats.tokens, "token"),
        dollars(stats.cost),
        duration(stats.runtime_ms / 1_000),
    ]
    note(" · ".join(parts))
    if result.outputs.missing:
        note(f"missing: {printable(', '.join(result.outputs.missing))}")
    numbers = result.condensation
    if numbers.level > 1:
        note(f"{numbers.tokens:,} of {numbers.original_tokens:,} tokens of its answer are shown")
    note(f"full result: {'not kept as a file here' if path is None else path}")
    note(f"session: {printable(result.session_key)}")
