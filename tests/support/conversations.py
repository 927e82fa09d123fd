"""Conversations put straight into a store, through its own writes or, where there are many
messages, into its tables: what a session would have left there, without Temporal.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import insert, update

from perdure.audit import AuditFiles
from perdure.context import View, message_tokens
from perdure.domain.envelopes import Envelope
from perdure.domain.labels import Label
from perdure.domain.messages import Message, Role, ToolCall
from perdure.domain.states import ToolStatus, TurnState
from perdure.domain.steps import OpenSession, SessionReset, StepRequest, ToolRequest
from perdure.store import Store
from perdure.store.claims import Result, Ruling, Verdict
from perdure.store.tables import messages, sessions
from perdure.store.turns import Begun, StepAnswer

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def opened(home: Path, url: str | None = None) -> AsyncIterator[Store]:
    """The store of a home, by default in a file of it."""
    store = await Store.open(url or f"sqlite:///{home}/perdure.db", AuditFiles.of(home, None))
    try:
        yield store
    finally:
        await store.close()


class Conversation:
    """One session, and the turn it is in."""

    def __init__(self, store: Store, key: str) -> None:
        self.store = store
        self.key = key
        self.turn = 0
        self.epoch = 0

    @classmethod
    async def open(cls, store: Store, key: str = "default:talk") -> Conversation:
        """A session that has said nothing yet."""
        await store.sessions.open(OpenSession(session_key=key, agent="main"))
        return cls(store, key)

    async def begin(self, text: str, label: Label = Label.PUBLIC) -> Begun:
        """Begin a turn with a message."""
        self.turn += 1
        envelope = Envelope(message_id=f"msg_{self.turn}", label=label)
        await self.store.mailbox.post(self.key, envelope, text)
        begun = await self.store.turns.begin_step(self._step(1, label))
        assert isinstance(begun, Begun)
        return begun

    async def answer(self, text: str, step: int = 1, label: Label = Label.PUBLIC) -> None:
        """End the turn."""
        done = StepAnswer(text=text, model="test", ended=TurnState.COMPLETED)
        await self.store.turns.commit_step(self._step(step, label), done)

    async def say(self, text: str, answer: str = "fine", label: Label = Label.PUBLIC) -> None:
        """A whole turn without tools."""
        await self.begin(text, label)
        await self.answer(answer, label=label)

    async def call(self, *results: str | None, step: int = 1, label: Label = Label.PUBLIC) -> None:
        """A step of the turn that calls a tool for each of `results`; None is never recorded."""
        calls = tuple(
            ToolCall(id=f"call_{index}", name="look", arguments=json.dumps({"n": index}))
            for index in range(len(results))
        )
        await self.store.turns.commit_step(
            self._step(step, label), StepAnswer(text="", tool_calls=calls, model="test")
        )
        for index, (call, result) in enumerate(zip(calls, results, strict=True)):
            if result is not None:
                await self.seal(call, index, result, step=step, label=label)
        await self.store.turns.begin_step(self._step(step + 1, label))

    async def seal(
        self, call: ToolCall, index: int, text: str, *, step: int, label: Label = Label.PUBLIC
    ) -> None:
        """Record the result of a call."""
        request = ToolRequest(
            session_key=self.key, agent="main", turn=self.turn, step=step, call=index, label=label
        )
        await self.store.claims.claim(request, Ruling(verdict=Verdict.RUN, call=call))
        await self.store.claims.seal(request, call, Result(status=ToolStatus.OK, text=text))

    async def reset(self) -> None:
        """Begin a new epoch."""
        self.epoch += 1
        request = SessionReset(session_key=self.key, request_id=f"reset_{self.epoch}")
        await self.store.sessions.reset(request)

    async def messages(self, epoch: int | None = None) -> list[Message]:
        """Everything said in an epoch, in order."""
        pages = self.store.nodes.messages(
            self.key, self.epoch if epoch is None else epoch, 1, 2_000_000_000
        )
        return [message async for page in pages for message in page]

    async def view(self, budget: int = 1_000_000) -> View:
        """What the turn under way sees."""
        page = await self.store.transcript.page(self.key, 1, 0)
        begun = Begun(attempt=1, epoch=self.epoch, message_count=page.total)
        return await self.store.tails.view(self.key, begun, budget=budget, turn=self.turn)

    async def fill(self, texts: Iterable[str], label: Label = Label.PUBLIC) -> None:
        """Many turns at once: the texts are said and answered in turns."""
        rows = []
        for index, text in enumerate(texts):
            by_user = index % 2 == 0
            self.turn += by_user
            rows.append(
                {
                    "session_key": self.key,
                    "seq": index + 1,
                    "id": f"msg_{self.turn}" if by_user else f"ans_{self.turn}_1",
                    "epoch": 0,
                    "turn": self.turn,
                    "step": 0 if by_user else 1,
                    "role": Role.USER if by_user else Role.ASSISTANT,
                    "text": text,
                    "tool_calls": [],
                    "label": label,
                    "tokens": message_tokens(text),
                    "at": BEGAN + timedelta(seconds=index),
                }
            )
        await self.store.database.write(_fill, self.key, self.turn, label, rows)

    def _step(self, step: int, label: Label) -> StepRequest:
        return StepRequest(
            session_key=self.key,
            agent="main",
            turn=self.turn,
            step=step,
            message_id=f"msg_{self.turn}",
            label=label,
        )


def _fill(  # type: ignore[no-untyped-def]
    connection, key: str, turn: int, label: Label, rows: Sequence[dict[str, object]]
) -> None:
    connection.execute(insert(messages), list(rows))
    connection.execute(
        update(sessions)
        .where(sessions.c.session_key == key)
        .values(turn=turn, label=label, next_seq=len(rows) + 1, message_count=len(rows))
    )
