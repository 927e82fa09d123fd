"""`perdure memory export|import|stats|reindex`: a memory as a whole.

Invariant: an export holds all that the viewer may see, and to import it twice is to import it
once.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, TextIO

import typer

from gateway.cli.memory_options import Agent, Tenant, opened, view_of
from gateway.cli.options import AsJson, Home
from gateway.cli.output import console, note, print_json
from perdure.domain.errors import InvalidArgument


def export(
    home: Home = None,
    as_json: AsJson = False,
    tenant: Tenant = "default",
    agent: Agent = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Write there; else to standard output."),
    ] = None,
) -> None:
    """Write every entry as one line of JSON, oldest first, for `perdure memory import`.

    With --json and --out, what was written is told as JSON too.
    """

    async def read() -> int:
        count = 0
        with nullcontext(sys.stdout) if out is None else out.open("w", encoding="utf-8") as file:
            async with opened(home) as client:
                async for entry in client.export(view_of(client, tenant, agent)):
                    print(entry.model_dump_json(), file=file)
                    count += 1
        return count

    count = asyncio.run(read())
    if out is not None and as_json:
        print_json({"entries": count, "file": str(out)})
    elif out is not None:
        note(f"{count:,} entries are in {out}.")


def load(
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
            async with opened(home) as client:
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


def stats(
    home: Home = None, as_json: AsJson = False, tenant: Tenant = "default", agent: Agent = None
) -> None:
    """Show the memory in figures."""
    from gateway.cli.memory_view import print_stats

    async def read() -> None:
        async with opened(home) as client:
            figures = await client.stats(view_of(client, tenant, agent))
        print_json(figures) if as_json else print_stats(console(), figures)

    asyncio.run(read())


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
            async with opened(home) as client:
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


def _source(file: str) -> nullcontext[TextIO] | TextIO:
    if file == "-":
        return nullcontext(sys.stdin)
    try:
        return open(file, encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(f"{file} cannot be read: {error.strerror}.") from error
