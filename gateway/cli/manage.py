"""`perdure interrupt`, `reset`, `close`: taking a session in hand.

Invariant: nothing said is ever deleted here; and what discards waiting work asks a person first.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from gateway.cli.options import AsJson, Home, Key
from gateway.cli.output import console, print_json

if TYPE_CHECKING:
    from gateway.client import SessionClient

Result = TypeVar("Result")

app = typer.Typer()

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask whether to do it.")]


@app.command()
def interrupt(key: Key, home: Home = None, as_json: AsJson = False) -> None:
    """Stop the turn under way and keep what it has; the session takes the next message."""
    turn = asyncio.run(with_client(home, lambda client: client.interrupt(key)))
    if as_json:
        print_json({"session_key": key, "turn": turn})
    elif turn is None:
        console().print(f"No turn of {key} is running.")
    else:
        console().print(f"Turn {turn} of {key} is interrupted.")


@app.command()
def reset(key: Key, home: Home = None, as_json: AsJson = False, yes: Yes = False) -> None:
    """Go on with an empty context: stops the turn, discards what waits, keeps the transcript."""
    confirm(yes, f"Interrupt {key}, discard its waiting messages and empty its context?")
    dropped = asyncio.run(with_client(home, lambda client: client.reset(key)))
    if as_json:
        print_json({"session_key": key, "dropped": dropped})
    else:
        lost = f"; {dropped} waiting messages were discarded" if dropped else ""
        console().print(f"{key} begins anew{lost}. The transcript is kept.")


@app.command()
def close(key: Key, home: Home = None, as_json: AsJson = False, yes: Yes = False) -> None:
    """Let a session answer what it has, then end it. A later message opens it again."""
    confirm(yes, f"Close {key}?")
    asyncio.run(with_client(home, lambda client: client.close(key)))
    if as_json:
        print_json({"session_key": key, "state": "closed"})
    else:
        console().print(f"{key} is closed. A message opens it again.")


async def with_client(
    home: Path | None, call: Callable[[SessionClient], Awaitable[Result]]
) -> Result:
    """What `call` comes to, with a client on the cluster."""
    from gateway.client import SessionClient
    from perdure.config import load_settings

    async with SessionClient.connect(load_settings(home)) as client:
        return await call(client)


def confirm(yes: bool, question: str) -> None:
    """Ask a person at the terminal; a script has decided already.

    Raises:
        typer.Exit: with code 1, when the answer is no.
    """
    if not yes and sys.stdin.isatty() and not typer.confirm(question, err=True):
        raise typer.Exit(1)
