"""`SessionClient.tell`: a person lets one session say something to another.

Invariant: the message is the session's: marked with its key, at its label, under the rules for what
sessions send. Nothing waits in the session itself: it is the caller who waits, and who carries the
answers of a ping-pong from one to the other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from ulid import ULID

from gateway.admission import Admission
from gateway.sight import Sight
from perdure.config import Settings
from perdure.domain.envelopes import Sender, SenderKind
from perdure.domain.exchanges import (
    TOLD,
    Answered,
    EndedBy,
    ExchangeResult,
    ExchangeStats,
    ExchangeStatus,
    Line,
    Mode,
    Sent,
    Settled,
    Unanswered,
    without_skip,
)
from perdure.domain.ids import new_message_id
from perdure.domain.labels import Label, can_flow
from perdure.domain.messages import Usage
from perdure.domain.states import ToolStatus, TurnState
from perdure.sending import refusal_entry, terms_of
from perdure.shapes import ABOVE
from perdure.store import Store
from perdure.store.addressing import Unreachable, WriteDown
from perdure.store.mailbox import Place
from perdure.store.transcript import TurnResult

#: Waits for the end of the turn of a message, from a cursor of the outbox on.
AwaitTurn = Callable[[str, str, int], Awaitable[TurnResult]]


class Telling:
    """One message, or one exchange, that a person leads in the name of a session."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        admission: Admission,
        sight: Sight,
        await_turn: AwaitTurn,
        mode: Mode,
        seconds: float,
    ) -> None:
        self._sight = sight
        self._terms = terms_of(settings)
        self._store = store
        self._admission = admission
        self._await_turn = await_turn
        self._mode = mode
        self._exchange = None if mode is Mode.FIRE_AND_FORGET else f"{TOLD}{ULID()}"
        self._started = time.monotonic()
        self._seconds = seconds
        self._lines: list[Line] = []
        self._usage = Usage()

    async def tell(
        self,
        sender: str,
        target: str,
        text: str,
        label: Label,
        max_turns: int,
        message_id: str | None = None,
    ) -> ExchangeResult:
        """Send `text`, which is `label`, and wait as the mode says. Of a `message_id` that was
        taken before, nothing is waited for.

        Raises:
            Unreachable, WriteDown, LimitExceeded: nothing was sent.
        """
        message_id = message_id or new_message_id()
        cursor, taken = await self._send(sender, target, text, label, message_id)
        if self._mode is Mode.FIRE_AND_FORGET:
            return Sent(message_id=message_id)
        if taken:
            return Unanswered(status=ExchangeStatus.DELIVERED_NO_REPLY, message_id=message_id)
        self._lines.append(Line(from_session=sender, message_id=message_id, text=text))
        answer = await self._answer(target, message_id, cursor)
        if isinstance(answer, ExchangeStatus):
            return Unanswered(status=answer, message_id=message_id)
        theirs, turns = answer, 0
        speaker, listener = target, sender
        while (over := self._over(answer, speaker == target, turns, max_turns)) is None:
            said, _ = without_skip(answer.text)
            message_id = new_message_id()
            try:
                cursor, _ = await self._send(speaker, listener, said, answer.label, message_id)
            except (Unreachable, WriteDown):
                over = EndedBy.POLICY
                break
            found = await self._answer(listener, message_id, cursor)
            if isinstance(found, ExchangeStatus):
                over = EndedBy.TIMEOUT
                break
            answer, turns = found, turns + 1
            speaker, listener = listener, speaker
            theirs = answer if speaker == target else theirs
        return self._result(theirs, turns, over)

    async def _send(
        self, sender: str, target: str, text: str, label: Label, message_id: str
    ) -> tuple[int, bool]:
        """Post a message; the outbox as it stood then, and whether it was taken before."""
        try:
            if await self._sight.hides(target):
                raise Unreachable("It is not there for who asks.")
            await self._store.exchanges.check(sender, target, label, self._terms)
        except (Unreachable, WriteDown) as error:
            await self._store.record(refusal_entry(error, sender, target, label, self._mode))
            raise
        _, posted = await self._admission.send(
            target,
            text,
            None,
            message_id,
            label,
            Sender(kind=SenderKind.SESSION, id=sender),
            self._exchange,
        )
        return posted.cursor, posted.place is Place.TAKEN

    async def _answer(
        self, session_key: str, message_id: str, cursor: int
    ) -> TurnResult | ExchangeStatus:
        """How the turn of a message ended, or what became of the message without it."""
        left = self._seconds - (time.monotonic() - self._started)
        try:
            async with asyncio.timeout(max(left, 0.0)):
                found = await self._await_turn(session_key, message_id, cursor)
        except TimeoutError:
            withdrawn = await self._store.exchanges.take_back(session_key, message_id, "withdrawn")
            return ExchangeStatus.WITHDRAWN if withdrawn else ExchangeStatus.DELIVERED_NO_REPLY
        self._usage += found.usage
        self._lines.append(
            Line(
                from_session=session_key,
                message_id=_answer_id(found),
                text=self._shown(found),
            )
        )
        return found

    def _over(
        self, answer: TurnResult, by_target: bool, turns: int, max_turns: int
    ) -> EndedBy | None:
        """Why an answer was the last one, if it was."""
        speaker = EndedBy.TARGET if by_target else EndedBy.SENDER
        if answer.state is not TurnState.COMPLETED:
            return EndedBy.FAILURE
        ended = any(
            tool.name == "end_exchange" and tool.status is ToolStatus.OK for tool in answer.tools
        )
        if self._mode is Mode.WAIT or ended or without_skip(answer.text)[1]:
            return speaker
        if turns >= max_turns:
            return EndedBy.MAX_TURNS
        return EndedBy.TIMEOUT if time.monotonic() - self._started >= self._seconds else None

    def _result(self, theirs: TurnResult, turns: int, over: EndedBy) -> ExchangeResult:
        failed = theirs.state is not TurnState.COMPLETED
        reply = {
            "status": ExchangeStatus.FAILED if failed else ExchangeStatus.REPLIED,
            "response": self._shown(theirs),
            "stats": ExchangeStats(
                runtime_ms=int((time.monotonic() - self._started) * 1000),
                tokens=self._usage.input_tokens + self._usage.output_tokens,
                cost=self._usage.cost,
            ),
        }
        if self._mode is Mode.WAIT:
            return Answered.model_validate(reply)
        told = {"turns_completed": turns, "ended_by": over, "transcript": tuple(self._lines)}
        return Settled.model_validate({**reply, **told})

    def _shown(self, answer: TurnResult) -> str:
        """An answer as a person here may read it."""
        if not can_flow(answer.label, self._sight.level):
            return ABOVE.format(answer.label)
        return without_skip(answer.text)[0]


def _answer_id(found: TurnResult) -> str:
    completed = found.state is TurnState.COMPLETED
    return f"ans_{found.turn}_{found.steps}" if completed else f"end_{found.turn}"
