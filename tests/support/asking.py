"""Asking a model in tests: messages, a listener, one call through a chain."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from perdure.domain.messages import Message, Role
from perdure.models import Answer, ModelChain, Piece, Prompt, ToolOffer

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MODEL = "openai-chat:test"
READ = ToolOffer(
    "read", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}}
)


class Ear:
    """Collects the pieces of a stream; `text` is what a listener holds in the end."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.heard = asyncio.Event()

    async def __call__(self, piece: Piece) -> None:
        self.pieces.append(piece)
        self.heard.set()

    @property
    def text(self) -> str:
        text = ""
        for piece in self.pieces:
            text = piece.text if piece.restart else text + piece.text
        return text


def message(seq: int, role: Role, text: str = "", **fields: object) -> Message:
    base = {"id": f"m{seq}", "seq": seq, "turn": 1, "role": role, "text": text, "at": NOW}
    return Message.model_validate({**base, **fields})


def answered(seq: int, answer: Answer) -> Message:
    return message(seq, Role.ASSISTANT, answer.text, tool_calls=answer.tool_calls, raw=answer.raw)


def result(seq: int, call_id: str, text: str) -> Message:
    return message(seq, Role.TOOL, text, tool_call_id=call_id, tool_name="read")


HELLO = message(1, Role.USER, "hello")


async def ask(
    *transcript: Message,
    models: Sequence[str] = (MODEL,),
    ear: Ear | None = None,
    silence: float = 30.0,
) -> Answer:
    prompt = Prompt("be brief", transcript or (HELLO,), (READ,), silence=silence)
    return await ModelChain(models).answer(prompt, ear or Ear())
