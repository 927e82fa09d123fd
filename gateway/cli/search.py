"""`perdure search`: what was said, in all sessions or one.

Invariant: every page says how many there are and how to get the next one.
"""

from __future__ import annotations

import asyncio
import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.look import reading
from gateway.cli.options import AsJson, Home
from gateway.cli.output import console, print_json

if TYPE_CHECKING:
    from perdure.store.search import Found

app = typer.Typer()


class Scope(StrEnum):
    """Whose words are searched."""

    ALL = "all"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@app.command()
def search(
    query: Annotated[
        list[str],
        typer.Argument(
            metavar="QUERY",
            help='Words; "a phrase", OR, NOT or -word, ( ), word*. After -- a query may begin '
            "with -.",
            show_default=False,
        ),
    ],
    home: Home = None,
    as_json: AsJson = False,
    session: Annotated[
        str | None, typer.Option("--session", metavar="KEY", help="Only in this session.")
    ] = None,
    scope: Annotated[Scope, typer.Option("--scope", help="Only of this speaker.")] = Scope.ALL,
    limit: Annotated[int, typer.Option("--limit", min=1, max=200, help="How many.")] = 10,
    offset: Annotated[
        int, typer.Option("--offset", min=0, help="How many of the best to skip.")
    ] = 0,
) -> None:
    """Find messages, the best match first."""
    asked = " ".join(query)

    async def read() -> Found:
        from perdure.domain.messages import Role

        role = None if scope is Scope.ALL else Role(scope)
        async with reading(home) as client:
            return await client.search(
                asked, session_key=session, role=role, limit=limit, offset=offset
            )

    found = asyncio.run(read())
    if as_json:
        print_json(found)
        return
    again = ["perdure", "search", *query]
    again += ["--session", session] if session else []
    again += ["--scope", scope] if scope is not Scope.ALL else []
    _print(found, offset, shlex.join(again))


def _print(found: Found, offset: int, again: str) -> None:
    from gateway.cli.words import clock, printable

    out = console()
    for hit in found.hits:
        place = f"{hit.session_key} · {hit.seq} · {hit.role} · {clock(hit.at)} · {hit.label}"
        out.print(f"{place} · {hit.score:.2f}", style="dim")
        out.print(f"  {printable(hit.snippet)}")
        out.print()
    total = f"{found.total:,}" if found.complete else f"more than {found.total:,}"
    if not found.total:
        out.print("Nothing was found." if found.complete else "Nothing was found in what was read.")
    elif not found.hits:
        out.print(f"{total} found, none after skipping {offset:,}.")
    else:
        seen = offset + len(found.hits)
        how = "" if found.lane == "fts" else ", as parts of words"
        out.print(f"{offset + 1:,}–{seen:,} of {total}{how}", style="dim")
        if seen < found.total or not found.complete:
            out.print(f"More: {again} --offset {seen}", style="dim")
