"""`perdure memory`: what agents remember, looked at and looked after by people.

Invariant: what forgets asks a person first; every answer says what it matched and what it changed.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from gateway.cli.manage import Yes, confirm
from gateway.cli.options import AsJson, Home
from gateway.cli.output import console, note, print_json
from perdure.domain.errors import InvalidArgument
from perdure.domain.labels import Label
from perdure.domain.memory import MemoryType, Sort, Trust

if TYPE_CHECKING:
    from gateway.memory import MemoryClient
    from perdure.domain.memory import View

app = typer.Typer()
_memory = typer.Typer(help="What agents remember: search, store, pin, forget, carry elsewhere.")
app.add_typer(_memory, name="memory")

Tenant = Annotated[str, typer.Option("--tenant", metavar="NAME", help="Whose memory.")]
Agent = Annotated[
    str | None,
    typer.Option("--agent", metavar="NAME", help="Only of this agent.", show_default=False),
]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="WORD", help="Only with this tag; may be repeated."),
]
OfType = Annotated[MemoryType | None, typer.Option("--type", help="Only of this type.")]
OfTrust = Annotated[Trust | None, typer.Option("--trust", help="Only of this trust.")]
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
        async with _client(home) as client:
            view = _view(client, tenant, agent, tag, memory_type, trust)
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
        async with _client(home) as client:
            entry = await client.get(_view(client, tenant, agent), path)
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
        async with _client(home) as client:
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
        async with _client(home) as client:
            view = _view(client, tenant, agent, tag, memory_type, trust)
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
        async with _client(home) as client:
            gone = await client.delete(_view(client, tenant), ids)
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
        async with _client(home) as client:
            view = _view(client, tenant, agent, tag, memory_type, trust)
            total = (await client.browse(view, limit=1)).total
            await asyncio.to_thread(confirm, yes, f"Forget {total:,} entries of {tenant}?")
            gone = await client.flush(view)
        _changed(as_json, "deleted", gone, gone)

    asyncio.run(write())


@_memory.command()
def export(
    home: Home = None,
    tenant: Tenant = "default",
    agent: Agent = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write there; else to standard output."),
    ] = None,
) -> None:
    """Write every entry as one line of JSON, oldest first, for `perdure memory import`."""

    async def read() -> int:
        count = 0
        with nullcontext(sys.stdout) if out is None else out.open("w", encoding="utf-8") as file:
            async with _client(home) as client:
                async for entry in client.export(_view(client, tenant, agent)):
                    print(entry.model_dump_json(), file=file)
                    count += 1
        return count

    count = asyncio.run(read())
    if out is not None:
        note(f"{count:,} entries are in {out}.")


@_memory.command("import")
def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Lines of JSON; - reads standard input.")
    ],
    home: Home = None,
    as_json: AsJson = False,
    tenant: Tenant = "default",
) -> None:
    """Store entries that were exported. Importing twice changes nothing."""

    async def write() -> int:
        with _source(file) as lines:
            async with _client(home) as client:
                done = await client.load(lines, tenant=tenant)
        if as_json:
            print_json(done)
        else:
            console().print(f"{done.stored:,} stored, {done.known:,} known, ", end="")
            console().print(f"{len(done.refused):,} refused.")
        for one in () if as_json else done.refused[:20]:
            note(f"line {one.line}: {one.reason}")
        return len(done.refused)

    if asyncio.run(write()):
        raise typer.Exit(1)


@_memory.command()
def stats(
    home: Home = None, as_json: AsJson = False, tenant: Tenant = "default", agent: Agent = None
) -> None:
    """Show the memory in figures."""
    from gateway.cli.memory_view import print_stats

    async def read() -> None:
        async with _client(home) as client:
            figures = await client.stats(_view(client, tenant, agent))
        print_json(figures) if as_json else print_stats(console(), figures)

    asyncio.run(read())


@_memory.command()
def reindex(
    home: Home = None,
    as_json: AsJson = False,
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="Only this tenant's memory.")
    ] = None,
    here: Annotated[
        bool, typer.Option("--here", help="Do it in this process, without a worker.")
    ] = False,
) -> None:
    """Embed what memory.embedder has not embedded yet, after it was changed or had failed.

    A worker does it, and goes on after a restart where it stood; search works meanwhile.
    """
    from gateway.client import SessionClient
    from perdure.config import load_settings
    from perdure.domain.memory import Reindexed

    def tell(progress: Reindexed) -> None:
        if as_json:
            print_json(progress)
        else:
            note(f"{progress.done:,} of {progress.total:,} entries")

    async def write() -> None:
        if here:
            async with _client(home) as client:
                await client.reindex_here(tenant, tell)
            return
        async with SessionClient.connect(load_settings(home)) as sessions:
            workflow_id = await sessions.memory.reindex(tenant)
        if as_json:
            print_json({"workflow_id": workflow_id})
        else:
            console().print(f"The workflow {workflow_id} embeds what is not embedded.")
            console().print("perdure memory stats tells how many entries are left.", style="dim")

    asyncio.run(write())


# Parts ----------------------------------------------------------------------------------------


@asynccontextmanager
async def _client(home: Path | None) -> AsyncIterator[MemoryClient]:
    from gateway.memory import MemoryClient
    from perdure.config import load_settings

    async with MemoryClient.open(load_settings(home)) as client:
        yield client


def _view(
    client: MemoryClient,
    tenant: str,
    agent: str | None = None,
    tags: list[str] | None = None,
    memory_type: MemoryType | None = None,
    trust: Trust | None = None,
) -> View:
    return client.view(
        tenant, agent=agent, tags=tuple(tags or ()), memory_type=memory_type, trust=trust
    )


def _pin(home: Path | None, as_json: bool, tenant: str, ids: list[str], pinned: bool) -> None:
    async def write() -> None:
        async with _client(home) as client:
            changed = await client.pin(_view(client, tenant), ids, pinned=pinned)
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


def _source(file: str) -> nullcontext[TextIO] | TextIO:
    if file == "-":
        return nullcontext(sys.stdin)
    try:
        return open(file, encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be read: {error.strerror}.") from error
