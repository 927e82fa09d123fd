"""`perdure context`: what a model is given of a session, and what it stands for.

Invariant: nothing is changed. What is expanded is written as it was stored, to its last byte.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from gateway.cli.look import reading
from gateway.cli.options import AsJson, Home, Key
from gateway.cli.output import console, note, print_json
from perdure.domain.errors import InvalidArgument
from perdure.domain.labels import can_flow

if TYPE_CHECKING:
    from gateway.contexts import ContextTree, SeenContext
    from perdure.store.transcript import HistoryMessage

app = typer.Typer()


@app.command()
def context(
    key: Key,
    home: Home = None,
    as_json: AsJson = False,
    expand: Annotated[
        str | None,
        typer.Option(
            "--expand",
            metavar="ID",
            help="Write the messages below this summary, or this one message, word for word.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where to; else stdout."),
    ] = None,
    at: Annotated[
        int | None,
        typer.Option(
            "--at",
            metavar="TURN",
            min=1,
            help="Show what the model was given for the last answer of this turn.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show a session's context: its summaries as a tree, and the messages that are in it as they
    are.

    What --expand writes has a line before each message of a summary; a single message is written
    alone, byte for byte. With --json it is one message a line.
    """
    if expand is not None and at is not None:
        raise InvalidArgument("--expand and --at are two questions.", "Ask one of them.")
    if output is not None and expand is None:
        raise InvalidArgument("--output goes with --expand.", "Name what to expand.")
    if expand is not None:
        asyncio.run(_expand(home, key, expand, output, as_json))
        return
    found = asyncio.run(_read(home, key, at))
    if as_json:
        print_json(found)
        return
    from gateway.cli.context_view import print_seen, tree_lines
    from gateway.contexts import ContextTree

    if isinstance(found, ContextTree):
        for line in tree_lines(found):
            console().print(line)
    else:
        print_seen(console(), found)


async def _read(home: Path | None, key: str, at: int | None) -> ContextTree | SeenContext:
    async with reading(home) as client:
        if at is None:
            return await client.context.tree(key)
        return await client.context.at(key, at)


async def _expand(
    home: Path | None, key: str, name: str, output: Path | None, as_json: bool
) -> None:
    async with reading(home) as client:
        found = await client.context.expand(key, name)
        level = client.settings.gateway.level
        with _opened(output) as file:
            count = withheld = 0
            async for message in found.messages:
                _write(message, file, alone=message.id == name, as_json=as_json)
                count += 1
                withheld += not can_flow(message.label, level)
    if output is not None:
        note(f"{output}: {count} of {found.expected} messages")
    elif count < found.expected:
        note(f"{found.expected - count} of {found.expected} messages are not in the store any more")
    if withheld:
        note(f"{withheld} of them are above gateway.level, {level}, and withheld")


@contextmanager
def _opened(output: Path | None) -> Iterator[TextIO]:
    """The file to write to. Nothing is translated on the way: not the ends of lines either."""
    if output is None:
        yield sys.stdout
        return
    try:
        file = output.open("w", encoding="utf-8", newline="")
    except OSError as error:
        raise InvalidArgument(f"{output} cannot be written: {error.strerror}.") from error
    with file:
        yield file


def _write(message: HistoryMessage, file: TextIO, *, alone: bool, as_json: bool) -> None:
    from gateway.cli.context_view import marked
    from gateway.cli.words import printable

    if as_json:
        file.write(f"{message.model_dump_json()}\n")
        return
    text = message.text if alone else marked(message)
    file.write(printable(text) if file.isatty() else text)
