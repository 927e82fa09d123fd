"""A conversation at a terminal, or line by line from a script.

Invariant: a message typed is sent once or is still on the input line; leaving never stops a turn,
and only Ctrl-C during a turn interrupts it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sys
import threading
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

from gateway.cli.look import print_history, print_status
from gateway.cli.output import console, note, print_json
from gateway.cli.prompting import Left, Prompt, unseen_typing
from gateway.cli.talk import answer_document, decoded, named, telling_of_approvals
from gateway.cli.turn_view import BAD, WARN, TurnView
from gateway.cli.words import one_line, plural
from gateway.client import SessionClient
from gateway.live import (
    LiveItem,
    LiveSession,
    MessageDropped,
    MessageJoined,
    RunChanged,
    TurnEnded,
    TurnStarted,
)
from perdure.config import load_settings
from perdure.domain.errors import Conflict, NotFound, PerdureError, Unavailable
from perdure.domain.ids import new_message_id
from perdure.domain.keys import SessionKey
from perdure.domain.labels import can_flow
from perdure.domain.states import EventKind, SessionState
from perdure.shapes import ABOVE

_log = logging.getLogger(__name__)

#: A word after a colon is for the chat itself; directives of the rehearsal model begin with `/`.
_COMMAND = re.compile(r":([a-z]+)(?:\s+(\S+))?\s*")
_HELP = (
    "Enter sends. Alt+Enter, or a line that ends with \\, begins a new line.",
    "Ctrl-C stops the turn under way. Ctrl-C or Ctrl-D on this line leaves; the session goes on.",
    ":status       the session in figures",
    ":history [N]  its last N messages",
    ":quit         leave",
)


async def converse(home: Path | None, key: str, agent: str | None) -> bool:
    """Talk at the terminal until the person leaves; whether it was by Ctrl-C."""
    # The SDK leaves a failed future behind where a call is given up; the screen is not for those.
    asyncio.get_running_loop().set_exception_handler(_log_only)
    async with SessionClient.connect(load_settings(home)) as client:
        return await _Chat(client, key, agent).run() is Left.INTERRUPT


def _log_only(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    _log.debug("unhandled in the event loop: %s", context)


async def script(home: Path | None, key: str, agent: str | None, as_json: bool) -> bool:
    """Send each line of stdin and print its answer; whether every turn was completed."""
    good = True
    async with SessionClient.connect(load_settings(home)) as client:
        async for line in _lines():
            with named() as message_id:
                async with telling_of_approvals(client, key):
                    result = await client.ask(key, line, agent=agent, message_id=message_id)
            if as_json:
                print_json(answer_document(result))
            else:
                print(result.text, flush=True)
            if result.error is not None:
                good = False
                if not as_json:
                    note(f"error: {result.error['message']} {result.error['hint']}".rstrip())
    return good


async def _lines() -> AsyncIterator[str]:
    """The lines of stdin that are not blank, while the event loop goes on."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes] = asyncio.Queue()

    def read() -> None:
        for line in sys.stdin.buffer:
            loop.call_soon_threadsafe(lines.put_nowait, line)
        loop.call_soon_threadsafe(lines.put_nowait, b"")

    # A daemon: nobody waits for a reader that waits for a terminal or a pipe.
    threading.Thread(target=read, name="stdin", daemon=True).start()
    while line := await lines.get():
        if text := decoded(line).rstrip("\r\n").strip():
            yield text


class _Chat:
    """One conversation at a terminal."""

    def __init__(self, client: SessionClient, key: str, agent: str | None) -> None:
        self._client = client
        self._key = key
        self._agent = agent
        self._prompt = Prompt(client.settings.home / "chat_history")
        self._console = console()
        self._view = TurnView(self._console)
        self._live: LiveSession
        self._peeked: LiveItem | None = None
        self._draft = ""
        #: The message that is being sent or answered: its id and its text.
        self._mine: tuple[str, str] | None = None
        #: Whether a turn is under way, or sure to come, that Ctrl-C may stop.
        self._admitted = False

    async def run(self) -> Left:
        """Until the person leaves; how."""
        cursor, running = await self._greet()
        async with LiveSession(self._client.store, self._key, after=cursor) as self._live:
            if running and not await self._attend(self._follow(await self._next())):
                return Left.INTERRUPT
            while True:
                text = await self._typed()
                if isinstance(text, Left):
                    return text
                if not text.strip():
                    continue
                if command := _COMMAND.fullmatch(text):
                    self._view.note(f"› {text}")
                    if command[1] == "quit":
                        return Left.END
                    await self._obey(command[1], command[2])
                elif not await self._attend(self._exchange(text)):
                    return Left.INTERRUPT

    async def _greet(self) -> tuple[int, bool]:
        """Say whom one talks to; where to begin to watch, and whether a turn runs."""
        store, settings = self._client.store, self._client.settings
        cursor = await store.outbox.newest_id()
        try:
            status = await self._client.status(self._key)
        except NotFound:
            agent = settings.agent_for(SessionKey.parse(self._key), self._agent)
            models = ", ".join(settings.agent(agent).models)
            self._view.note(f"{self._key} · new · {agent} on {models} · :help for help")
            return cursor, False
        if self._agent not in (None, status.agent):
            raise Conflict(
                f"The session {self._key} belongs to agent {status.agent}, not to {self._agent}.",
                "Leave --agent out, or use another session key.",
            )
        self._view.note(
            f"{self._key} · {plural(status.turns, 'turn')} · {status.agent} on {status.model} · "
            ":history shows them, :help the rest"
        )
        if status.state not in (SessionState.RUNNING, SessionState.WAITING):
            return cursor, False
        began = await store.outbox.newest_id(self._key, EventKind.TURN_STARTED)
        return began - 1, True

    async def _typed(self) -> str | Left:
        """What the person types. Turns that others begin meanwhile are shown, the line kept."""
        while True:
            typing = asyncio.create_task(self._prompt.ask(self._draft))
            coming = asyncio.create_task(self._next())
            await asyncio.wait({typing, coming}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
            if not coming.cancelled():
                self._peeked = coming.result()
            if typing.done():
                self._draft = ""
                if (text := typing.result()) is not None:
                    return text
            self._draft = self._prompt.withdraw()
            await typing
            if not await self._attend(self._follow(await self._next())):
                return Left.INTERRUPT

    async def _next(self) -> LiveItem:
        if self._peeked is not None:
            item, self._peeked = self._peeked, None
            return item
        return await anext(self._live)

    async def _exchange(self, text: str) -> None:
        """Send a message and show everything until its turn is over."""
        if self._mine is None or self._mine[1] != text:
            self._mine = (new_message_id(), text)
        message_id = self._mine[0]
        self._admitted = False
        self._view.echo(text)
        self._view.wait("sending…")
        try:
            await self._live.listen()
            ticket = await self._client.send(
                self._key, text, agent=self._agent, message_id=message_id
            )
        except (PerdureError, asyncio.CancelledError) as error:
            self._draft = text
            task = asyncio.current_task()
            # The SDK turns a cancelled call into one that went wrong.
            if isinstance(error, asyncio.CancelledError) or (task and task.cancelling()):
                self._view.note("■ not sent, or not known to be; Enter sends it again, once", WARN)
                return
            self._view.note(f"✗ {error}", BAD)
            if not isinstance(error, Unavailable):
                self._mine = None
            return
        self._admitted = True
        if ticket.position:
            self._view.note(f"waits behind {plural(ticket.position, 'message')}")
        while not _is_answer(item := await self._next(), message_id):
            await self._show(item)
        await self._show(item)

    async def _follow(self, item: LiveItem) -> None:
        """Show a turn that began by itself, from its first item to its end; or what happened
        between two turns."""
        self._admitted = not isinstance(item, RunChanged)
        await self._show(item)
        while self._admitted and not isinstance(item, TurnEnded | MessageDropped):
            item = await self._next()
            await self._show(item)

    async def _show(self, item: LiveItem) -> None:
        if self._mine is not None and _is_answer(item, self._mine[0]):
            self._mine = None
        if isinstance(item, TurnStarted):
            if self._mine is not None and item.message_id == self._mine[0]:
                # Also when its admission was never confirmed: it is not to be sent again.
                self._draft = ""
            elif (told := await self._said(item.message_id)) is not None:
                self._view.note(told)
        if isinstance(item, MessageJoined):
            told = await self._said(item.message_id)
            self._view.aside(told or f"message {item.message_id} joins the turn")
        else:
            self._view.show(item)

    async def _said(self, message_id: str) -> str | None:
        """A message of somebody else, on one line."""
        message = await self._client.store.transcript.message(self._key, message_id)
        if message is None:
            return None
        who = message.from_session or "someone else"
        level = self._client.settings.gateway.level
        text = message.text if can_flow(message.label, level) else ABOVE.format(message.label)
        return f"‹ {who}: {one_line(text, 500)}"

    async def _attend(self, work: Coroutine[None, None, None]) -> bool:
        """Do `work` while Ctrl-C stops the turn it shows; a second one leaves: False."""
        loop = asyncio.get_running_loop()
        working = asyncio.create_task(work)
        stopping: asyncio.Task[bool] | None = None

        def on_interrupt() -> None:
            nonlocal stopping
            asked = stopping is not None and (not stopping.done() or stopping.result())
            if asked or not self._admitted:
                working.cancel()
            else:
                stopping = asyncio.create_task(self._interrupt())

        loop.add_signal_handler(signal.SIGINT, on_interrupt)
        try:
            with unseen_typing():
                await asyncio.wait({working})
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            working.cancel()
            if stopping is not None:
                stopping.cancel()
                await asyncio.gather(stopping, return_exceptions=True)
        if not working.cancelled():
            working.result()
            return True
        self._view.note("You left; the turn goes on.")
        return False

    async def _interrupt(self) -> bool:
        """Stop the turn under way; whether there is one to be stopped."""
        self._view.note("stopping the turn… (Ctrl-C again leaves it running)", WARN)
        try:
            if await self._client.interrupt(self._key) is not None:
                return True
            self._view.note("no turn runs yet", WARN)
        except PerdureError as error:
            self._view.note(f"✗ {error}", BAD)
        return False

    async def _obey(self, command: str, argument: str | None) -> None:
        """Do one of the chat's own commands."""
        try:
            if command == "status":
                print_status(self._console, await self._client.status(self._key))
            elif command == "history":
                limit = int(argument) if argument and argument.isdecimal() else 10
                page = await self._client.history(self._key, limit=limit)
                print_history(self._console, page, offset=0)
            else:
                if command != "help":
                    self._view.note(f"there is no :{command}")
                for line in _HELP:
                    self._console.print(f"  {line}", style="dim")
        except PerdureError as error:
            self._view.note(f"✗ {error}", BAD)


def _is_answer(item: LiveItem, message_id: str) -> bool:
    if isinstance(item, TurnEnded):
        return item.result.message_id == message_id
    return isinstance(item, MessageDropped) and item.message_id == message_id
