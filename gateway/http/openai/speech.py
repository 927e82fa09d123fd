"""The text of one turn while it is said, for protocols that cannot take a word back.

Invariant: what was streamed ends with the turn's whole answer as the caller may read it, whatever
was said, retried or redacted before it. Only text is streamed that was let out piece by piece, and
only while the session is no higher than its listener.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from enum import StrEnum

from gateway.http.parts import Gateway
from gateway.live import LiveSession, MessageDropped, Restart, TextDelta, TurnEnded, TurnStarted
from perdure.domain.errors import NotFound, PerdureError
from perdure.domain.labels import can_flow, meet
from perdure.domain.messages import Frozen
from perdure.store.transcript import TurnResult

#: What stands between the texts of two steps, and before an answer that is begun anew.
BREAK = "\n\n"


class Anew(StrEnum):
    """Why text does not go on with what was said before it, which is no part of the answer."""

    #: What was said belongs to an earlier step.
    STEP = "step"
    #: What was said counts no more: the model failed, or policy has changed the answer.
    VOID = "void"


class Speech(Frozen):
    """More text."""

    text: str
    anew: Anew | None = None


class Ended(Frozen):
    """The end of the turn, after all of its text."""

    result: TurnResult


async def speech(
    gateway: Gateway, live: LiveSession, session_key: str, message_id: str
) -> AsyncGenerator[Speech | Ended]:
    """The turn of a message that was sent after `live` began to listen.

    Raises:
        NotFound: when the message is discarded before its turn.
    """
    said = _Said()
    async with live:
        turn, step, open_ears = 0, 0, False
        async for item in live:
            match item:
                case TurnStarted(message_id=of) if of == message_id:
                    turn = item.turn
                case MessageDropped(message_id=of) if of == message_id:
                    raise NotFound("The message was discarded before its turn.", "Send it again.")
                case TextDelta(committed=False) if item.turn == turn:
                    if item.step != step:
                        step = item.step
                        open_ears = await _may_hear(gateway, session_key)
                    if open_ears:
                        yield said.more(item.step, item.text)
                case Restart() if item.turn == turn:
                    said.void(item.step)
                case TurnEnded() if item.result.message_id == message_id:
                    break
    async for rest in _ended(gateway, session_key, message_id, said):
        yield rest


async def afterwards(
    gateway: Gateway, session_key: str, message_id: str
) -> AsyncGenerator[Speech | Ended]:
    """The turn of a message that was sent before: all of its text at its end."""
    async for rest in _ended(gateway, session_key, message_id, _Said()):
        yield rest


async def _ended(
    gateway: Gateway, session_key: str, message_id: str, said: _Said
) -> AsyncGenerator[Speech | Ended]:
    result = await gateway.client.wait(session_key, message_id)
    rest = said.rest(result)
    if rest is not None:
        yield rest
    yield Ended(result=result)


async def _may_hear(gateway: Gateway, session_key: str) -> bool:
    """Whether the caller may hear the session as it is now; its label rises between two steps."""
    caller = gateway.caller
    if caller.overseer:
        return True
    level = meet(gateway.client.settings.gateway.level, caller.clearance)
    try:
        status = await gateway.client.status(session_key)
    except PerdureError:
        return False
    return can_flow(status.label, level)


class _Said:
    """What was said of the newest step that spoke, and whether anything was."""

    def __init__(self) -> None:
        self._step = 0
        self._text = ""
        self._anything = False

    def more(self, step: int, text: str) -> Speech:
        anew = None
        if self._anything and not (step == self._step and self._text):
            anew = Anew.STEP if step != self._step else Anew.VOID
        if step != self._step:
            self._step, self._text = step, ""
        self._text += text
        self._anything = True
        return Speech(text=text, anew=anew)

    def void(self, step: int) -> None:
        if step == self._step:
            self._text = ""

    def rest(self, result: TurnResult) -> Speech | None:
        """What of the answer was not said yet."""
        final = self._step == result.steps
        if final and self._text and result.text.startswith(self._text):
            rest = result.text[len(self._text) :]
            return Speech(text=rest) if rest else None
        if not result.text:
            return None
        anew = (Anew.VOID if final else Anew.STEP) if self._anything else None
        return Speech(text=result.text, anew=anew)
