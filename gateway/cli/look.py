"""`perdure status`, `history`, `events`: looking at a session without touching it.

Invariant: every list is read by pages, and says how to get the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.options import AsJson, Home, Key
from gateway.cli.output import console, note, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from gateway.client import SessionClient
    from perdure.shapes import SessionStatus
    from perdure.store.outbox import Event
    from perdure.store.transcript import HistoryMessage, HistoryPage

app = typer.Typer()

#: Of a tool's result a person sees this much; `--json` has it all.
_RESULT_LINES = 8
_RESULT_LENGTH = 800

Offset = Annotated[int, typer.Option("--offset", min=0, help="How many of the newest to skip.")]


@app.command()
def status(key: Key, home: Home = None, as_json: AsJson = False) -> None:
    """Show a session in figures."""

    async def read() -> SessionStatus:
        async with reading(home) as client:
            return await client.status(key)

    found = asyncio.run(read())
    if as_json:
        print_json(found)
    else:
        print_status(console(), found)


@app.command()
def history(
    key: Key,
    home: Home = None,
    as_json: AsJson = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=200, help="How many messages.")] = 20,
    offset: Offset = 0,
    before: Annotated[
        int | None,
        typer.Option(
            "--before",
            metavar="SEQ",
            min=1,
            help="Only those before this one: pages that do not shift while the session goes on.",
        ),
    ] = None,
) -> None:
    """Show what was said: the newest page first, each page in order."""

    async def read() -> HistoryPage:
        async with reading(home) as client:
            return await client.history(key, limit=limit, offset=offset, before=before)

    page = asyncio.run(read())
    if as_json:
        print_json(page)
    else:
        print_history(console(), page, offset, before)


@app.command()
def events(
    key: Key,
    home: Home = None,
    as_json: AsJson = False,
    after: Annotated[
        int, typer.Option("--after", metavar="ID", min=0, help="Only those after this event.")
    ] = 0,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with those to come, until Ctrl-C.")
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="How many at most; without --follow 100 by default."),
    ] = None,
) -> None:
    """Print what happened in a session, oldest first; with --json one event a line."""
    asyncio.run(_events(home, key, after, follow, limit, as_json))


async def _events(
    home: Path | None, key: str, after: int, follow: bool, limit: int | None, as_json: bool
) -> None:
    out = console()
    if not follow:
        limit = limit or 100
    async with reading(home) as client:
        await client.status(key)
        count, cursor = 0, after
        async with aclosing(_told(client, key, after, follow)) as told:
            async for event in told:
                if limit is not None and count == limit:
                    note(f"There are more: perdure events {key} --after {cursor}")
                    return
                if as_json:
                    print_json(event)
                else:
                    out.print(_event_line(event))
                count, cursor = count + 1, event.id
                if follow and count == limit:
                    return


async def _told(client: SessionClient, key: str, after: int, follow: bool) -> AsyncGenerator[Event]:
    if follow:
        async with aclosing(client.store.outbox.follow(key, after)) as events:
            async for event in events:
                yield event
        return
    while page := await client.store.outbox.page(key, after=after):
        for event in page:
            yield event
        after = page[-1].id


@asynccontextmanager
async def reading(home: Path | None) -> AsyncIterator[SessionClient]:
    """A client that needs nothing but the store, closed when the block ends."""
    from gateway.client import SessionClient
    from perdure.config import load_settings

    async with SessionClient.connect(load_settings(home), reading=True) as client:
        yield client


def print_status(out: Console, status: SessionStatus) -> None:
    """A session's figures, one a line."""
    from gateway.cli.tables import fields, print_table
    from gateway.cli.words import clock, dollars, plural

    tokens = status.tokens
    table = fields()
    for name, value in (
        ("session", status.session_key),
        ("agent", f"{status.agent} on {status.model or 'no model: not configured any more'}"),
        ("kind", status.kind),
        ("state", f"{status.state}, {plural(status.pending, 'message')} waiting"),
        ("label", f"{status.label} of at most {status.clearance}"),
        ("channel", status.channel),
        ("user", status.user),
        ("turns", f"{status.turns:,} in {plural(status.steps, 'step')}"),
        ("tokens", f"{tokens.total:,}: {tokens.input:,} in, {tokens.output:,} out"),
        ("cost", dollars(status.cost)),
        ("children", f"{plural(status.children, 'run')} under way" if status.children else None),
        ("started", clock(status.started_at)),
    ):
        if value is not None:
            table.add_row(name, str(value))
    print_table(out, table)


def print_history(out: Console, page: HistoryPage, offset: int, before: int | None = None) -> None:
    """A page of a transcript, and where the next one is."""
    from gateway.cli.words import clock, printable

    calls: dict[int, str] = {}
    for message in page.messages:
        # A result stands where its step kept a place for it: right behind the answer.
        calls |= {
            message.seq + position: call.name
            for position, call in enumerate(message.tool_calls, start=1)
        }
        who = _speaker(message, calls)
        out.print(f"{message.seq} · {who} · {clock(message.at)} · {message.label}", style="dim")
        for line in _body(message):
            out.print(f"  {printable(line)}")
        out.print()
    if not page.messages:
        passed = f"none after skipping {offset}" + ("" if before is None else f" before {before}")
        out.print(f"{page.total} messages, {passed}.")
        return
    if before is not None:
        out.print(f"{len(page.messages)} of {page.total} messages, before {before}", style="dim")
        if page.has_more:
            older = page.messages[0].seq
            out.print(f"Older: perdure history {page.session_key} --before {older}", style="dim")
        return
    last = page.total - offset
    out.print(f"{last - len(page.messages) + 1}–{last} of {page.total} messages", style="dim")
    if page.has_more:
        older = offset + len(page.messages)
        out.print(f"Older: perdure history {page.session_key} --offset {older}", style="dim")


def _speaker(message: HistoryMessage, calls: dict[int, str]) -> str:
    if message.role == "tool":
        return f"result of {calls.get(message.seq, 'a tool')}"
    if message.from_session is not None:
        return f"from {message.from_session}"
    return message.role


def _body(message: HistoryMessage) -> list[str]:
    from gateway.cli.words import shown_arguments

    lines = message.text.rstrip().split("\n") if message.text else []
    if message.role == "tool":
        cut = message.text[:_RESULT_LENGTH].split("\n")[:_RESULT_LINES]
        rest = len(message.text) - len("\n".join(cut))
        lines = [*cut, f"… and {rest:,} more characters (--json shows them)"] if rest else cut
    return lines + [
        f"→ {call.name} {shown_arguments(call.arguments)}" for call in message.tool_calls
    ]


def _event_line(event: Event) -> str:
    from gateway.cli.words import clock, one_line

    place = "" if event.turn is None else f"turn {event.turn}"
    place += "" if event.step is None else f" step {event.step}"
    # The session of a run has the run's name in its key.
    known = {"session_key"} if event.payload.get("run_id") else set()
    told = " ".join(
        f"{name}={value}"
        for name, value in event.payload.items()
        if value != [] and name not in known
    )
    return f"{event.id:>6}  {clock(event.at)}  {event.kind:<16}  {place:<15}  {one_line(told, 300)}"
