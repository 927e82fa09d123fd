"""`perdure tree`: sessions and the runs below them, once or as they change.

Invariant: what is shown is what the store has; the screen is drawn anew from it, never patched.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.look import reading
from gateway.cli.options import AsJson, Home
from gateway.cli.output import console, print_json
from gateway.cli.subagents import RecentMinutes

if TYPE_CHECKING:
    from gateway.client import SessionClient

app = typer.Typer()

#: Without a session, runs that ended longer ago are left out, in minutes.
_RECENT = 30.0


@app.command()
def tree(
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="[KEY]",
            help="The session; else all that work or have runs.",
            show_default=False,
        ),
    ] = None,
    home: Home = None,
    as_json: AsJson = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Go on with every change, until Ctrl-C.")
    ] = False,
    recent_minutes: RecentMinutes = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1_000, help="How many sessions.")
    ] = 50,
    offset: Annotated[int, typer.Option("--offset", min=0, help="How many sessions to skip.")] = 0,
) -> None:
    """Show sessions and the runs below them: state, steps, last tool, tokens, time, task.

    Without KEY, runs that ended more than 30 minutes ago are left out, unless --recent-minutes says
    otherwise. With --watch --json there is a document for each change.
    """
    if recent_minutes is None and key is None:
        recent_minutes = _RECENT
    asked = {"recent_minutes": recent_minutes, "limit": limit, "offset": offset}
    asyncio.run(_show(home, key, asked, watch, as_json))


async def _show(
    home: Path | None, key: str | None, asked: dict[str, Any], watch: bool, as_json: bool
) -> None:
    async with reading(home) as client:
        out = console()
        if watch and out.is_terminal and not as_json:
            await _watch(client, key, asked)
            return
        async with aclosing(client.runs.trees(key, **asked)) as forests:
            async for forest in forests:
                if as_json:
                    print_json(forest)
                else:
                    from gateway.cli.tree_view import lines

                    for line in lines(forest):
                        out.print(line)
                if not watch:
                    return


async def _watch(client: SessionClient, key: str | None, asked: dict[str, Any]) -> None:
    from rich.console import Console, Group
    from rich.live import Live

    from gateway.cli.tree_view import lines

    shown = await client.runs.tree(key, **asked)
    # Drawn anew between changes too: times go on.
    with Live(
        get_renderable=lambda: Group(*lines(shown)),
        console=Console(markup=False, highlight=False),
        refresh_per_second=2,
    ) as live:
        async with aclosing(client.runs.trees(key, **asked)) as forests:
            async for forest in forests:
                shown = forest
                live.refresh()
