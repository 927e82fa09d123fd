"""`perdure sessions`: a list, or a table that follows what happens.

Invariant: every list is read by pages, and says how to get the next one.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.look import Offset, reading
from gateway.cli.options import AsJson, Home
from gateway.cli.output import console, print_json
from perdure.domain.keys import Kind
from perdure.domain.labels import Label
from perdure.domain.states import SessionState

if TYPE_CHECKING:
    from rich.table import Table

    from gateway.client import SessionClient
    from perdure.shapes import SessionList

app = typer.Typer()

#: How often a watched list is read again, in seconds.
_EVERY = 1.0


@app.command()
def sessions(
    home: Home = None,
    as_json: AsJson = False,
    kind: Annotated[Kind | None, typer.Option("--kind", help="Only these.")] = None,
    since_minutes: Annotated[
        float | None,
        typer.Option("--since-minutes", min=0, help="Only those active in the last N minutes."),
    ] = None,
    state: Annotated[
        SessionState | None, typer.Option("--state", help="Only those in this state.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="NAME", help="Only those of this agent.")
    ] = None,
    label: Annotated[
        Label | None, typer.Option("--label", help="Only those at this label.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many.")] = 50,
    offset: Offset = 0,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            "-w",
            help="Follow what happens, until Ctrl-C; with --json a "
            "document each time something changed.",
        ),
    ] = False,
) -> None:
    """List sessions, the last active first."""
    asked: dict[str, Any] = {
        "kind": kind,
        "since_minutes": since_minutes,
        "state": state,
        "agent": agent,
        "label": label,
        "limit": limit,
        "offset": offset,
    }

    async def read() -> None:
        async with reading(home) as client:
            if watch:
                await _watch(client, asked, as_json)
                return
            page = await client.sessions(**asked)
            if as_json:
                print_json(page)
            else:
                _print(page, asked)

    asyncio.run(read())


async def _watch(client: SessionClient, asked: dict[str, Any], as_json: bool) -> None:
    if as_json or not sys.stdout.isatty():
        before: SessionList | None = None
        while True:
            page = await client.sessions(**asked)
            if page != before and as_json:
                print_json(page)
            elif page != before:
                _print(page, asked)
            before = page
            await asyncio.sleep(_EVERY)
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    with Live(console=console(), auto_refresh=False, screen=True) as live:
        while True:
            page = await client.sessions(**asked)
            told = f"{len(page.sessions)} of {page.total} · Ctrl-C ends"
            live.update(Group(_table(page), Text(told, style="dim")), refresh=True)
            await asyncio.sleep(_EVERY)


def _print(page: SessionList, asked: dict[str, Any]) -> None:
    from gateway.cli.tables import print_table

    out = console()
    if page.sessions:
        print_table(out, _table(page))
    offset = asked["offset"]
    seen = offset + len(page.sessions)
    names = ("kind", "since_minutes", "state", "agent", "label")
    given = {name: asked[name] for name in names if asked[name] is not None}
    if not page.total and given:
        out.print("There are no such sessions.")
    elif not page.total:
        out.print("There are no sessions yet. `perdure ask default:me hello` starts one.")
    elif offset or seen < page.total:
        out.print(f"{offset + 1}–{seen} of {page.total}", style="dim")
    if seen < page.total:
        again = "".join(f" --{name.replace('_', '-')} {value}" for name, value in given.items())
        out.print(f"More: perdure sessions --offset {seen}{again}", style="dim")


def _table(page: SessionList) -> Table:
    from gateway.cli.tables import columns
    from gateway.cli.words import ago

    names = ("session", "agent", "kind", "state", "label", "messages", "active")
    table = columns(*names, right=["messages"])
    for one in page.sessions:
        table.add_row(
            one.session_key,
            one.agent,
            one.kind,
            one.state,
            one.label,
            f"{one.message_count:,}",
            ago(one.last_activity),
        )
    return table
