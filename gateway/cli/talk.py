"""`perdure ask`, `send`, `chat`: saying something to a session.

Invariant: a message is sent once. Whatever fails, the same command with the same message id goes
on where it was and never asks twice.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.options import AsJson, Home, Key
from gateway.cli.output import console, note, print_json
from perdure.domain.errors import InvalidArgument, Unavailable
from perdure.domain.ids import new_message_id
from perdure.domain.labels import Label
from perdure.domain.states import EventKind

if TYPE_CHECKING:
    from gateway.client import SessionClient
    from perdure.domain.envelopes import Ticket
    from perdure.store.transcript import TurnResult

app = typer.Typer()

Words = Annotated[
    str | None, typer.Argument(metavar="[TEXT]", help="The message; `-` or none reads stdin.")
]
Agent = Annotated[
    str | None,
    typer.Option("--agent", metavar="NAME", help="Who answers, in a new session."),
]
MessageId = Annotated[
    str | None,
    typer.Option(
        "--message-id",
        metavar="ID",
        help="Names the message for ever: sent again, it is the same message.",
    ),
]
MessageLabel = Annotated[
    Label, typer.Option("--label", case_sensitive=False, help="The level of what the text tells.")
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0,
        help="How long to wait for the answer; else for ever. Exit code 124 when it has not come.",
    ),
]


@app.command()
def ask(
    key: Key,
    text: Words = None,
    home: Home = None,
    as_json: AsJson = False,
    agent: Agent = None,
    message_id: MessageId = None,
    timeout: Timeout = None,
    label: MessageLabel = Label.PUBLIC,
) -> None:
    """Send a message and print the answer.

    Exit code 1 when the turn failed or was interrupted.
    """
    options = {"agent": agent, "message_id": message_id, "label": label, "timeout": timeout}
    result = asyncio.run(_ask(home, key, message_of(text), options))
    if as_json:
        print_json(answer_document(result))
    else:
        _tell(result)
    if result.error is not None:
        raise typer.Exit(1)


@app.command()
def send(
    key: Key,
    text: Words = None,
    home: Home = None,
    as_json: AsJson = False,
    agent: Agent = None,
    message_id: MessageId = None,
    label: MessageLabel = Label.PUBLIC,
) -> None:
    """Send a message and do not wait: it is answered whatever happens to this terminal."""
    options = {"agent": agent, "message_id": message_id, "label": label}
    ticket = asyncio.run(_send(home, key, message_of(text), options))
    if as_json:
        print_json(ticket)
        return
    state = f"queued behind {ticket.position}" if ticket.position else "next to be answered"
    state = "sent before, and not sent again" if ticket.duplicate else state
    console().print(f"{ticket.message_id} · {state}")


@app.command()
def chat(key: Key, home: Home = None, as_json: AsJson = False, agent: Agent = None) -> None:
    """Talk to a session: text and tool calls as they come, Ctrl-C interrupts a turn.

    When stdin is no terminal, each line of it is a message, and only the answers are printed (with
    --json one document a line, as `ask` has it); exit code 1 when a turn failed.
    """
    from gateway.cli.chat import converse, script

    if sys.stdin.isatty() and sys.stdout.isatty() and not as_json:
        if asyncio.run(converse(home, key, agent)):
            raise typer.Abort
    elif not asyncio.run(script(home, key, agent, as_json)):
        raise typer.Exit(1)


def answer_document(result: TurnResult) -> dict[str, Any]:
    """What `ask --json` prints."""
    document = result.model_dump(mode="json", exclude={"state"})
    if document["error"] is None:
        del document["error"]
    return document


async def _ask(home: Path | None, key: str, text: str, options: dict[str, Any]) -> TurnResult:
    from gateway.client import SessionClient
    from perdure.config import load_settings

    async with SessionClient.connect(load_settings(home)) as client:
        with named(options["message_id"]) as message_id:
            async with telling_of_approvals(client, key):
                return await client.ask(key, text, **options | {"message_id": message_id})


async def _send(home: Path | None, key: str, text: str, options: dict[str, Any]) -> Ticket:
    from gateway.client import SessionClient
    from perdure.config import load_settings

    async with SessionClient.connect(load_settings(home)) as client:
        with named(options["message_id"]) as message_id:
            return await client.send(key, text, **options | {"message_id": message_id})


@asynccontextmanager
async def telling_of_approvals(client: SessionClient, key: str) -> AsyncIterator[None]:
    """While the block waits, tell once of each call of the session that waits for a person."""
    telling = asyncio.create_task(_tell_of_approvals(client, key))
    try:
        yield
    finally:
        telling.cancel()
        # Whatever went wrong with the notes, the answer counts.
        await asyncio.gather(telling, return_exceptions=True)


async def _tell_of_approvals(client: SessionClient, key: str) -> None:
    from gateway.cli.words import asked_to_approve

    cursor = await client.store.outbox.newest_id()
    # What is asked for from here on, the outbox tells.
    told = set()
    for approval in reversed((await client.approvals(session_key=key)).approvals):
        told.add(approval.id)
        note(asked_to_approve(approval.tool, approval.id))
    async with aclosing(client.store.outbox.follow(key, cursor, near=True)) as events:
        async for event in events:
            asked = event.kind is EventKind.APPROVAL_REQUESTED
            if asked and event.payload["approval_id"] not in told:
                note(asked_to_approve(event.payload["tool"], event.payload["approval_id"]))


@contextmanager
def named(message_id: str | None = None) -> Iterator[str]:
    """An id for a message that is sent in the block; whoever leaves before the end is told it."""
    message_id = message_id or new_message_id()
    go_on = f"`perdure ask` with --message-id {message_id} goes on, and sends nothing twice."
    try:
        yield message_id
    except (Unavailable, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        # The SDK turns a call that Ctrl-C cancelled into one that went wrong.
        if isinstance(error, Unavailable) and not (task and task.cancelling()):
            raise Unavailable(error.message, go_on) from error
        note(go_on)
        raise asyncio.CancelledError from error


def _tell(result: TurnResult) -> None:
    from gateway.cli.words import figures, printable

    shown = sys.stdout.isatty()
    # A program that reads the answer gets it as it is; a terminal gets no control characters.
    print(printable(result.text) if shown else result.text, flush=True)
    if result.error is not None:
        note(f"error: {result.error['message']} {result.error['hint']}".rstrip())
    if shown:
        console().print(figures(result), style="dim")


def message_of(text: str | None) -> str:
    """The text given, or all of stdin without the line end that `echo` adds.

    Raises:
        InvalidArgument: when stdin is not UTF-8.
    """
    if text not in (None, "-"):
        return text or ""
    if sys.stdin.isatty():
        note("Type the message, then Ctrl-D.")
    return decoded(sys.stdin.buffer.read()).removesuffix("\n")


def decoded(read: bytes) -> str:
    """What was read from stdin, as text.

    Raises:
        InvalidArgument: when it is not UTF-8.
    """
    try:
        return read.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(
            f"The message on stdin is not UTF-8 at byte {error.start}.", "Send UTF-8 text."
        ) from error
