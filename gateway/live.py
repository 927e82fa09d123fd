"""A session's turns while they happen: the outbox and the streamed text as one stream of items.

Invariant: for every step, the text pieces since its last `Restart`, joined, are the committed text
as soon as the step is committed. So whoever shows the pieces shows the answer once, whole and as it
stands in the transcript, whatever crashed, was retried or came too late meanwhile.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from contextlib import aclosing
from datetime import datetime
from typing import Any, Self

from ulid import ULID

from gateway.live_items import (
    ApprovalAsked,
    ApprovalSettled,
    LiveItem,
    MessageDropped,
    MessageJoined,
    Restart,
    Retrying,
    RunChange,
    RunChanged,
    TextDelta,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
)
from gateway.sight import Sight, no_session
from perdure.domain.messages import ToolCall
from perdure.domain.states import TURN_ENDS, EventKind, ToolStatus
from perdure.store import Store
from perdure.store.deltas import LEASE, Delta
from perdure.store.outbox import Event
from perdure.store.transcript import HistoryMessage

__all__ = [
    "POLL",
    "ApprovalAsked",
    "ApprovalSettled",
    "LiveItem",
    "LiveSession",
    "MessageDropped",
    "MessageJoined",
    "Restart",
    "Retrying",
    "RunChange",
    "RunChanged",
    "TextDelta",
    "ToolEnded",
    "ToolStarted",
    "TurnEnded",
    "TurnStarted",
]

#: Seconds between two looks for streamed text while a model speaks; it is written every 100 ms.
POLL = 0.05

_RUN_CHANGES = {
    EventKind.RUN_QUEUED: RunChange.QUEUED,
    EventKind.RUN_STARTED: RunChange.STARTED,
    EventKind.RUN_STOPPING: RunChange.STOPPING,
    EventKind.RUN_STEERED: RunChange.STEERED,
    EventKind.RUN_ENDED: RunChange.ENDED,
    EventKind.RUN_KEPT: RunChange.KEPT,
}


class _Speech:
    """The text of the step under way, as it was told so far."""

    def __init__(self, turn: int, step: int) -> None:
        self.turn = turn
        self.step = step
        self.text = ""
        self.generation = 0
        #: Text of this generation and of those before it counts no more.
        self.void = 0

    def is_at(self, turn: int | None, step: int | None) -> bool:
        return (self.turn, self.step) == (turn, step)


class LiveSession:
    """`async with LiveSession(store, key, after=cursor) as live: async for item in live: …`

    Endless: leave the loop when you have seen what you wanted. `anext` may be cancelled and called
    again without losing an item. While a turn runs, workers are asked to stream its text.

    Raises:
        NotFound: when the session is not there for the caller, or goes out of their sight.

    Args:
        store: where the session's words are kept.
        session_key: it may not exist yet.
        after: a cursor: the id of an outbox event, or the `cursor` of an item.
        sight: whose; nothing above what they may be told is told. Without one it is a person's at
            this machine.
    """

    def __init__(
        self, store: Store, session_key: str, *, after: int, sight: Sight | None = None
    ) -> None:
        self._store = store
        self._sight = sight
        self._silent = False
        self._key = session_key
        self._after = self._cursor = after
        self._listener = f"live_{ULID()}"
        self._events: asyncio.Queue[Event | Exception] = asyncio.Queue()
        self._event: Event | Exception | None = None
        self._ready: deque[LiveItem] = deque()
        self._running = False
        self._renew_at: float | None = None
        self._speech: _Speech | None = None
        self._delta_cursor = 0
        self._calls: dict[tuple[int | None, int | None, int], ToolCall] = {}
        self._begun: dict[tuple[int | None, int | None, int], datetime] = {}

    async def __aenter__(self) -> Self:
        if self._sight is not None and await self._sight.hides(self._key):
            raise no_session(self._key)
        self._pump = asyncio.create_task(self._follow(), name=f"live {self._key}")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)
        if self._renew_at is not None:
            await self._store.deltas.leave(self._key, self._listener)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> LiveItem:
        while not self._ready:
            await self._advance()
        return self._ready.popleft()

    async def listen(self) -> None:
        """Ask for streamed text ahead of a turn; call it before `send` to get the first words."""
        await self._store.deltas.listen(self._key, self._listener)
        self._renew_at = asyncio.get_running_loop().time() + LEASE / 2

    async def _follow(self) -> None:
        try:
            async with aclosing(self._store.outbox.follow(self._key, self._after)) as events:
                async for event in events:
                    if self._sight is not None:
                        event = await self._sight.shown(event)
                    self._events.put_nowait(event)
        except Exception as error:
            self._events.put_nowait(error)

    async def _advance(self) -> None:
        if self._running and asyncio.get_running_loop().time() >= (self._renew_at or 0):
            await self.listen()
        if self._event is None:
            self._event = await self._next_event()
        if isinstance(self._event, Exception):
            raise self._event
        if self._event is not None:
            # Kept until its items are ready: a cancelled wait must not lose it.
            items = await self._told(self._event)
            self._finish(self._event, items)
            self._event = None
        if self._speech is not None:
            await self._read_deltas(self._speech)

    async def _next_event(self) -> Event | Exception | None:
        patience = None
        if self._speech is not None:
            patience = POLL
        elif self._running:
            patience = LEASE / 4
        try:
            async with asyncio.timeout(patience):
                return await self._events.get()
        except TimeoutError:
            return None

    def _finish(self, event: Event, items: list[LiveItem]) -> None:
        """Hand an event's items out; only the last of them lets a reader go on behind it."""
        behind = self._cursor
        # Going on within a step begins with the step: its text comes from its start.
        if event.kind not in (EventKind.STEP_STARTED, EventKind.STEP_RETRYING):
            behind = event.id
        last = len(items) - 1
        self._ready.extend(
            item.model_copy(update={"cursor": behind if index == last else self._cursor})
            for index, item in enumerate(items)
        )
        self._cursor = behind

    async def _told(self, event: Event) -> list[LiveItem]:
        turn, step, payload = event.turn or 0, event.step or 0, event.payload
        if event.turn is not None:
            self._running = event.kind not in TURN_ENDS
        here = {"cursor": 0, "turn": turn}
        match event.kind:
            case EventKind.TURN_STARTED:
                return [TurnStarted(**here, message_id=payload["message_id"])]
            case EventKind.STEP_STARTED:
                await self._listen_to_step()
                return self._speaking(turn, step, payload["attempt"])
            case EventKind.STEP_RETRYING:
                told = {name: payload[name] for name in ("attempt", "delay", "reason")}
                return [Retrying(**here, step=step, **told)]
            case EventKind.STEP_COMPLETED:
                return await self._committed(turn, step, payload["message_id"])
            case EventKind.TOOL_STARTED:
                call = self._calls.get((turn, step, payload["call"]))
                self._begun[turn, step, payload["call"]] = event.at
                return [
                    ToolStarted(
                        **here,
                        step=step,
                        call=payload["call"],
                        tool=payload["tool"],
                        arguments=call.arguments if call else "{}",
                    )
                ]
            case EventKind.TOOL_COMPLETED:
                return [await self._tool_ended(event)]
            case EventKind.APPROVAL_REQUESTED:
                names = ("call", "tool", "approval_id", "expires_at")
                asked = {name: payload[name] for name in names}
                return [ApprovalAsked(**here, step=step, **asked)]
            case EventKind.APPROVAL_DECIDED:
                told = {name: payload[name] for name in ("call", "approval_id", "state")}
                return [ApprovalSettled(**here, step=step, **told)]
            case EventKind.MESSAGE_DROPPED:
                told = {name: payload[name] for name in ("message_id", "reason")}
                return [MessageDropped(**here, **told)]
            case EventKind.MESSAGE_JOINED:
                return [MessageJoined(**here, step=step, message_id=payload["message_id"])]
            case kind if kind in _RUN_CHANGES:
                return [_run_changed(_RUN_CHANGES[kind], payload)]
            case kind if kind in TURN_ENDS:
                return await self._turn_ended(turn, payload["message_id"])
        return []

    async def _listen_to_step(self) -> None:
        """Whether the words of a step may be told as they come: the label of its session, which
        they have, was raised before it began."""
        if self._sight is not None:
            row = await self._store.sessions.get(self._key)
            self._silent = row is not None and not self._sight.reads(row.label)

    async def _message(self, message_id: str) -> HistoryMessage | None:
        message = await self._store.transcript.message(self._key, message_id)
        if message is None or self._sight is None:
            return message
        return self._sight.readable_message(message)

    def _speaking(self, turn: int, step: int, attempt: int) -> list[LiveItem]:
        speech = self._speech
        if speech is None or not speech.is_at(turn, step):
            self._speech = _Speech(turn, step)
            # A reader that comes back into the middle of a step may have shown its beginning.
            if attempt == 1 and self._cursor != self._after:
                return []
        else:
            speech.text = ""
            speech.void = speech.generation
        return [Restart(cursor=0, turn=turn, step=step)]

    async def _read_deltas(self, speech: _Speech) -> None:
        for delta in await self._store.deltas.after(self._key, self._delta_cursor):
            if (delta.turn, delta.step) > (speech.turn, speech.step):
                return  # a step whose start is still to be told
            self._delta_cursor = delta.id
            if speech.is_at(delta.turn, delta.step) and delta.generation > speech.void:
                self._spoken(speech, delta)

    def _spoken(self, speech: _Speech, delta: Delta) -> None:
        here = {"cursor": self._cursor, "turn": delta.turn, "step": delta.step}
        if delta.generation > speech.generation:
            if speech.text:
                self._ready.append(Restart(**here))
            speech.generation, speech.text = delta.generation, ""
        if delta.generation == speech.generation and not self._silent:
            speech.text += delta.text
            self._ready.append(TextDelta(**here, text=delta.text))

    async def _committed(self, turn: int, step: int, message_id: str) -> list[LiveItem]:
        message = await self._message(message_id)
        text = message.text if message else ""
        calls = message.tool_calls if message else ()
        self._calls = {(turn, step, number): call for number, call in enumerate(calls)}
        # Calls of another turn may be under way beside.
        self._begun = {place: at for place, at in self._begun.items() if place[0] != turn}
        here = {"cursor": 0, "turn": turn, "step": step}
        speech, self._speech = self._speech, None
        items: list[LiveItem] = []
        told = speech.text if speech and speech.is_at(turn, step) else ""
        if not text.startswith(told):
            items.append(Restart(**here))
            told = ""
        if text != told:
            items.append(TextDelta(**here, text=text[len(told) :], committed=True))
        return items

    async def _tool_ended(self, event: Event) -> ToolEnded:
        turn, step, call = event.turn or 0, event.step or 0, event.payload["call"]
        status = ToolStatus(event.payload["status"])
        begun = self._begun.get((turn, step, call))
        error = None
        if status is not ToolStatus.OK:
            result = await self._message(f"res_{turn}_{step}_{call}")
            error = _reason(result.text) if result else None
        return ToolEnded(
            cursor=0,
            turn=turn,
            step=step,
            call=call,
            tool=event.payload["tool"],
            status=status,
            seconds=(event.at - begun).total_seconds() if begun else None,
            error=error,
        )

    async def _turn_ended(self, turn: int, message_id: str) -> list[LiveItem]:
        result = await self._store.transcript.turn_of(self._key, message_id)
        assert result is not None, "the event that ends a turn is committed with it"
        if self._sight is not None:
            result = await self._sight.readable(result)
        items: list[LiveItem] = []
        speech, self._speech = self._speech, None
        if speech is not None and speech.text:
            items.append(Restart(cursor=0, turn=turn, step=speech.step))
        return [*items, TurnEnded(cursor=0, turn=turn, result=result)]


def _run_changed(change: RunChange, payload: dict[str, Any]) -> RunChanged:
    told = {name: payload.get(name) for name in ("reason", "successor")}
    return RunChanged(cursor=0, turn=0, run_id=payload["run_id"], change=change, **told)


def _reason(text: str) -> str:
    """The message of a refusal that a model reads as JSON; else the text itself."""
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, TypeError, KeyError):
        return text
