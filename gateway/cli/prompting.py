"""The input line of a chat.

Invariant: what was typed is never lost: it is returned, or handed back as a draft.
"""

from __future__ import annotations

import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.formatted_text import AnyFormattedText
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

MARK = "› "
_INDENT = "  "


class Left(Enum):
    """How somebody left instead of typing."""

    END = "Ctrl-D"
    INTERRUPT = "Ctrl-C"


class Prompt:
    """Reads messages of one or more lines, with a history kept in `history`."""

    def __init__(self, history: Path) -> None:
        # What people say to their agents is nobody else's business.
        history.touch(mode=0o600)
        self._session: PromptSession[str | None] = PromptSession(
            history=FileHistory(str(history)),
            multiline=True,
            key_bindings=_keys(),
            prompt_continuation=_continuation,
            erase_when_done=True,
        )

    async def ask(self, draft: str = "") -> str | Left | None:
        """A message, how the person left, or None after `withdraw`."""
        try:
            return await self._session.prompt_async(
                [("bold", MARK)], default=draft, set_exception_handler=False
            )
        except EOFError:
            return Left.END
        except KeyboardInterrupt:
            return Left.INTERRUPT

    def withdraw(self) -> str:
        """Take the input line off the screen; what was typed so far. Ends `ask`."""
        draft = self._session.default_buffer.text
        if self._session.app.is_running:
            self._session.app.exit(result=None)
        return draft


@contextmanager
def unseen_typing() -> Iterator[None]:
    """What is typed during the block does not show; it comes to the next input line."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    quiet = termios.tcgetattr(terminal)
    quiet[0] &= ~termios.ICRNL
    # Signals stay on: Ctrl-C works.
    quiet[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(terminal, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)


def _continuation(width: int, line: int, wraps: int) -> AnyFormattedText:
    return _INDENT


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.text_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
