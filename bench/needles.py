"""Two hundred unique strings in a long session, and whether each can be had back: by search, and
by expanding the summaries that took the place of what was said.

A string counts as recovered only if the whole message that it stands in comes back, byte for byte.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.growing import Session
from perdure.store.context_search import Kind
from perdure.tools.context import CtxExpand, CtxSearch

NEEDLES = 200
#: Characters of the messages in whose middle every fourth needle stands.
_LONG = 10_000
_HEADER = re.compile(r"--- (\S+) · .* · (\d+) characters( of JSON)? ---\n")
_CALL = re.compile(r"--- calls \S+ · (\d+) characters ---\n")


def needles(seed: int = 3) -> list[str]:
    """Strings of ten kinds that stand nowhere else: ids, paths, mail, numbers, scripts, signs."""
    drawn = random.Random(seed)
    made: dict[str, None] = {}
    while len(made) < NEEDLES:
        number = drawn.randrange(10**9)
        name = "".join(drawn.choices("bcdfgklmnprstvz", k=8))
        signs = "".join(chr(0x4E00 + drawn.randrange(20_000)) for _ in range(6))
        kinds = (
            f"{drawn.getrandbits(128):032x}",
            f"ticket-{number}",
            f"{name}.{number % 997}@example.org",
            f"/srv/{name}/v{number % 89}/{name[::-1]}.py:{number % 900}",
            f"{number // 1_000_000}.{number % 1_000_000:06d}",
            f"the {name} of {name[::-1]}",
            signs,
            f"<{name} & '{name[::-1]}' %_* {number}>",
            f"{name}\t{number}\r\nnext",
            f"{name}_{name[::-1].title()}{number % 100}",
        )
        made[kinds[len(made) % len(kinds)]] = None
    return list(made)


@dataclass
class Field:
    """The session, and which message holds which needle."""

    session: Session
    planted: dict[str, tuple[str, str]] = field(default_factory=dict)

    async def plant(self, tokens: int, texts: Iterator[str]) -> None:
        """Let the session reach `tokens`, the needles evenly over it: by a user, by the model, in
        a tool's result."""
        left = needles()
        count = len(left)
        while self.session.raw_tokens < tokens:
            said = {"text": next(texts), "answer": next(texts), "result": next(texts)}
            place = ("text", "answer", "result")[len(left) % 3]
            due = left and self.session.raw_tokens >= tokens * (count - len(left)) / count
            if due:
                needle = left.pop()
                long = next(texts) * 100 if len(left) % 4 == 0 else said[place]
                middle = long[:_LONG]
                half = len(middle) // 2
                said[place] = f"{middle[:half]} {needle} {middle[half:]}"
            first = self.session.count + 1
            await self.session.say(**said)
            if due:
                offset = {"text": 0, "result": 2, "answer": 3}[place]
                self.planted[needle] = (f"msg_{first + offset}", said[place])
        await self.session.written()

    async def found_by_search(self) -> int:
        """How many are found by `ctx_search` and come back from the id that the hit names."""
        recovered = 0
        for needle, (message, text) in self.planted.items():
            found = await self.session.call(CtxSearch(query=f'"{needle}"'))
            hits = [hit for hit in found.hits if hit.kind is Kind.MESSAGE and hit.id == message]
            if hits:
                whole = await self.expanded(hits[0].summary_id or message)
                recovered += whole.get(message) == text
        return recovered

    async def found_by_expansion(self) -> int:
        """How many come back when every summary in the context is expanded; what is still raw
        stands in the context itself."""
        session = self.session
        summaries = await session.home.store.summaries.view(session.key, 0, session.turn + 1)
        whole: dict[str, str] = {}
        for summary in summaries:
            whole |= await self.expanded(summary.id)
        context = await session.home.store.tails.view(
            session.key, session.begun(), budget=session.budget, turn=session.turn + 1
        )
        whole |= {message.id: message.text for message in context.groups.messages(0)}
        return sum(whole.get(message) == text for message, text in self.planted.values())

    async def expanded(self, name: str) -> dict[str, str]:
        """The messages that `ctx_expand` hands back, by id: from its body or out of its files."""
        expanded = await self.session.call(CtxExpand(summary_id=name))
        if expanded.body is not None:
            return dict(_messages(expanded.body))
        files = self.session.workspace()
        paths = [expanded.path]
        if expanded.files > 1:
            paths = [f"{expanded.path}/{number:04}.txt" for number in range(1, expanded.files + 1)]
        parts = [files.read_bytes(path).decode().partition("\n\n")[2] for path in paths]
        return dict(_messages("".join(parts)))


def _messages(text: str) -> Iterator[tuple[str, str]]:
    """Each message of an expansion with its text; the lengths say where it ends."""
    place = 0
    while place < len(text):
        header = _HEADER.match(text, place)
        assert header is not None, text[place : place + 80]
        end = header.end() + int(header[2])
        said = text[header.end() : end]
        yield header[1], json.loads(said) if header[3] else said
        place = end + 1
        while call := _CALL.match(text, place):
            place = call.end() + int(call[1]) + 1
