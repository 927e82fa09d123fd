"""`perdure mcp`: an MCP server on standard input and output; and the MCP servers that agents use.

Invariant: while it serves, nothing but the protocol is written to standard output.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.options import AsJson, Home
from gateway.cli.output import console, print_json
from perdure.domain.access import Caller, Scope
from perdure.domain.labels import Label

if TYPE_CHECKING:
    from gateway.mcp.sources import SourceView

app = typer.Typer()
_mcp = typer.Typer(help="Serve an MCP client, or look at the MCP servers that agents use.")
app.add_typer(_mcp, name="mcp")

#: Without --scope: everything but approvals, keys, and looking after the memory.
_USUAL = (Scope.CHAT, Scope.READ, Scope.STEER)

Tenant = Annotated[
    str | None,
    typer.Option(
        "--tenant", metavar="NAME", help="Only sessions of this tenant.", show_default=False
    ),
]
Clearance = Annotated[
    Label | None,
    typer.Option(
        "--clearance",
        metavar="LEVEL",
        help="The highest label of what it tells; by default gateway.level.",
        show_default=False,
    ),
]
Scopes = Annotated[
    list[Scope] | None,
    typer.Option(
        "--scope",
        metavar="SCOPE",
        help="What it may do, once for each: chat, read, steer, admin. By default the first three.",
        show_default=False,
    ),
]


@_mcp.callback(invoke_without_command=True)
def serve(
    context: typer.Context,
    home: Home = None,
    tenant: Tenant = None,
    clearance: Clearance = None,
    scope: Scopes = None,
) -> None:
    """Serve one MCP client on standard input and output, as the client starts it.

    It offers sessions, runs and memory as tools, to who started it: a stack must be up. By HTTP
    the gateway offers the same at /mcp.
    """
    if context.invoked_subcommand is not None:
        return
    from gateway.mcp.stdio import serve as serve_here
    from perdure.config import load_settings

    # Standard output is the client's.
    logging.basicConfig(level=os.environ.get("LOG_LEVEL", "WARNING"), stream=sys.stderr)
    settings = load_settings(home)
    caller = Caller(
        name="mcp",
        tenant=tenant,
        scopes=frozenset(scope or _USUAL),
        clearance=settings.gateway.level if clearance is None else clearance,
    )
    asyncio.run(serve_here(settings, caller))


@_mcp.command()
def sources(home: Home = None, as_json: AsJson = False) -> None:
    """Reach every MCP server of the settings, and tell what it offers and to whom.

    What has changed since the last turn that used a server is told too: look at it, since agents
    read the descriptions.
    """
    found = asyncio.run(_sources(home))
    if as_json:
        print_json({"sources": [one.model_dump(mode="json") for one in found]})
        return
    if not found:
        console().print("No MCP servers. They are tables [mcp.NAME] of perdure.toml.")
    for one in found:
        _show(one)


async def _sources(home: Path | None) -> list[SourceView]:
    from gateway.mcp.sources import look
    from perdure.config import load_settings

    return await look(load_settings(home))


def _show(source: SourceView) -> None:
    from gateway.cli.words import plural, printable

    clean = printable if sys.stdout.isatty() else str
    state = "reachable" if source.reachable else "not reachable"
    console().print(f"{source.name} · {state} · {plural(len(source.tools), 'tool')}")
    console().print(f"  {source.where}")
    console().print(f"  may be told {source.clearance}, tells {source.label}")
    used = ", ".join(source.agents) or "no agent"
    console().print(f"  used by {used}")
    if source.error is not None:
        console().print(f"  {clean(source.error)}")
    for tool in source.tools:
        first = tool.description.split("\n")[0][:100]
        console().print(f"  {tool.called} · {tool.effect} · {clean(first)}")
    for left in source.left_out:
        console().print(f"  left out: {clean(left.name)}: {clean(left.reason)}")
    for what, names in source.changes.named():
        console().print(f"  {what} since the last turn: {', '.join(map(clean, names))}")
