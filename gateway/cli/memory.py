"""`perdure memory`: what agents remember, looked at and looked after by people.

Invariant: what forgets asks a person first; every answer says what it matched and what it changed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.manage import Yes, confirm
from gateway.cli.memory_carrying import export, load, reindex, stats
from gateway.cli.memory_options import Agent, OfTrust, OfType, Tags, Tenant, opened, view_of
from gateway.cli.options import AsJson, Home
from gateway.cli.output import console, note, print_json
from perdure.domain.labels import Label
from perdure.domain.memory import MemoryType, Sort, Trust

app = typer.Typer()
_memory = typer.Typer(help="What agents remember: search, store, pin, forget, carry elsewhere.")
app.add_typer(_memory, name="memory")

Ids = Annotated[
    list[str], typer.Argument(metavar="ID…", help="Entries, by id.", show_default=False)
]


@_memory.command()
def search(
    query: Annotated[
        list[str],
        typer.Argument(
            metavar="QUERY",
            help='In your own words; "a phrase", OR, NOT or -word, ( ) and word* must match. After '
            "-- a query may begin with -.",
            show_default=False,
        ),
    ],
    home: Home = None,
    as_json: AsJson = False,
    tenant: Tenant = "default",
    agent: Agent = None,
    tag: Tags = None,
    memory_type: OfType = None,
    trust: OfTrust = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=50, help="How many.")] = 10,
) -> None:
    """Find entries by meaning and by word, the best first."""
    from gateway.cli.memory_view import print_results

    async def read() -> None:
        async with opened(home) as client:
            view = view_of(client, tenant, agent, tag, memory_type, trust)
            found = await client.search(view, " ".join(query), limit=limit)
        print_json(found) if as_json else print_results(console(), found)

    asyncio.run(read())


@_memory.command()
def get(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="memory/… or an id.", show_default=False)
    ],
    home: Home = None,
    as_json: AsJson = False,
    tenant: Tenant = "default",
    agent: Agent = None,
) -> None:
    """Show one entry as a whole."""
    from gateway.cli.memory_view import print_entry

    async def read() -> None:
        async with opened(home) as client:
            entry = await client.get(view_of(client, tenant, agent), path)
        print_json(entry) if as_json else print_entry(console(), entry)

    asyncio.run(read())


@_memory.command()
def store(
    content: Annotated[
        str,
        typer.Argument(metavar="TEXT", help="What to remember; - reads it from standard input."),
    ],
    home: Home = None,
    as_json: AsJson = False,
    tenant: Tenant = "default",
    agent: Agent = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="WORD", help="May be repeated.")
    ] = None,
    memory_type: Annotated[MemoryType, typer.Option("--type")] = MemoryType.SEMANTIC,
    trust: Annotated[
        Trust, typer.Option("--trust", help="How far it may be relied on.")
    ] = Trust.SYSTEM,
    label: Annotated[
        Label, typer.Option("--label", help="Sessions below this level do not see it.")
    ] = Label.PUBLIC,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="PATH",
            help="Its path below memory/; another text under it supersedes this one.",
            show_default=False,
        ),
    ] = None,
    pin: Annotated[
        bool, typer.Option("--pin", help="Have it in every context of its agent.")
    ] = False,
) -> None:
    """Have an agent remember something; by default the default agent. A secret is refused."""
    from perdure.domain.memory import NewEntry, Origin

    text = sys.stdin.read() if content == "-" else content

    async def write() -> None:
        async with opened(home) as client:
            new = NewEntry(
                tenant=tenant,
                agent=client.agent(agent),
                content=text,
                key=key,
                tags=tuple(tag or ()),
                memory_type=memory_type,
                trust=trust,
                label=label,
                pinned=pin,
                origin=Origin.PERSON,
            )
            stored = await client.store(new)
        if as_json:
            print_json(stored)
        else:
            known = "" if stored.new else ", as it was before"
            console().print(f"Remembered as {stored.path} ({stored.id}){known}.")

    asyncio.run(write())


@_memory.command()
def browse(
    home: Home = None,
    as_json: AsJson = False,
    tenant: Tenant = "default",
    agent: Agent = None,
    tag: Tags = None,
    memory_type: OfType = None,
    trust: OfTrust = None,
    sort: Annotated[Sort, typer.Option("--sort")] = Sort.NEWEST,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many.")] = 20,
    offset: Annotated[int, typer.Option("--offset", min=0, help="How many to skip.")] = 0,
) -> None:
    """List entries by their time, superseded ones among them."""
    from gateway.cli.memory_view import print_page

    async def read() -> None:
        async with opened(home) as client:
            view = view_of(client, tenant, agent, tag, memory_type, trust)
            page = await client.browse(view, offset=offset, limit=limit, sort=sort)
        print_json(page) if as_json else print_page(console(), page, offset)

    asyncio.run(read())


@_memory.command()
def pin(ids: Ids, home: Home = None, as_json: AsJson = False, tenant: Tenant = "default") -> None:
    """Have entries in every context of their agent, within memory.pinned_tokens."""
    _pin(home, as_json, tenant, ids, True)


@_memory.command()
def unpin(ids: Ids, home: Home = None, as_json: AsJson = False, tenant: Tenant = "default") -> None:
    """Have entries found by search only, again."""
    _pin(home, as_json, tenant, ids, False)


@_memory.command()
def delete(
    ids: Ids,
    home: Home = None,
    as_json: AsJson = False,
    tenant: Tenant = "default",
    yes: Yes = False,
) -> None:
    """Forget entries, exactly those named."""
    confirm(yes, f"Forget {len(ids)} {'entry' if len(ids) == 1 else 'entries'}?")

    async def write() -> None:
        async with opened(home) as client:
            gone = await client.delete(view_of(client, tenant), ids)
        _changed(as_json, "deleted", ids, gone)

    asyncio.run(write())


@_memory.command()
def flush(
    home: Home = None,
    as_json: AsJson = False,
    tenant: Tenant = "default",
    agent: Agent = None,
    tag: Tags = None,
    memory_type: OfType = None,
    trust: OfTrust = None,
    yes: Yes = False,
) -> None:
    """Forget everything that the filters match."""

    async def write() -> None:
        async with opened(home) as client:
            view = view_of(client, tenant, agent, tag, memory_type, trust)
            total = (await client.browse(view, limit=1)).total
            await asyncio.to_thread(confirm, yes, f"Forget {total:,} entries of {tenant}?")
            gone = await client.flush(view)
        _changed(as_json, "deleted", gone, gone)

    asyncio.run(write())


def _pin(home: Path | None, as_json: bool, tenant: str, ids: list[str], pinned: bool) -> None:
    async def write() -> None:
        async with opened(home) as client:
            changed = await client.pin(view_of(client, tenant), ids, pinned=pinned)
        _changed(as_json, "pinned" if pinned else "unpinned", ids, changed)

    asyncio.run(write())


def _changed(
    as_json: bool, done: str, asked: list[str] | tuple[str, ...], ids: tuple[str, ...]
) -> None:
    if as_json:
        print_json({done: list(ids), "asked": len(asked)})
        return
    console().print(f"{len(ids):,} of {len(asked):,} {done}.")
    for name in asked:
        if name not in ids:
            note(f"{name}: not there, or nothing to change")


for command, name in ((export, "export"), (load, "import"), (stats, "stats"), (reindex, "reindex")):
    _memory.command(name)(command)
