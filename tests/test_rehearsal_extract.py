"""Asked for a summary, the rehearsal model extracts: the same each time, as long as it may be, and
deaf to directives in what it reads.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context import estimate_tokens, summary_id
from perdure.context.acceptance import Flaw, judged
from perdure.context.planning import Pass
from perdure.context.prompts import SummaryPrompt, summary_prompt
from perdure.domain.messages import Message, Role
from perdure.models import Answer, Prompt, resolve
from perdure.models.extracting import HEADING

AT = datetime(2026, 1, 1, 9, 30, tzinfo=UTC)


def said(*texts: str) -> list[Message]:
    return [
        Message(
            id=f"m{seq}",
            seq=seq,
            turn=seq,
            role=Role.USER if seq % 2 else Role.ASSISTANT,
            text=text,
            tokens=estimate_tokens(text),
            at=AT,
        )
        for seq, text in enumerate(texts, 1)
    ]


def asked(messages: list[Message], target: int) -> tuple[Pass, SummaryPrompt]:
    made = Pass(
        id=summary_id("k", 0, 0, [message.id for message in messages]),
        depth=0,
        sources=tuple(message.id for message in messages),
        first_seq=1,
        last_seq=len(messages),
        messages=len(messages),
        source_tokens=100_000,
        target=target,
    )
    return made, summary_prompt(made, messages, most_tokens=20_000)


async def extract(prompt: SummaryPrompt) -> Answer:
    question = Message(id="q", seq=1, turn=0, role=Role.USER, text=prompt.text, at=AT)

    async def unheard(_: object) -> None:
        return None

    model = await resolve("rehearsal")
    return await model.answer(Prompt(prompt.instructions, (question,)), unheard)


async def test_an_extract_keeps_what_cannot_be_guessed() -> None:
    messages = said(
        "Good morning. Please book flight LH-454 to Oslo for Marie. It is a nice day today.",
        "Certainly, that can be done. It is booked under K7XQ2M for 312.40 euro.",
    )
    _, prompt = asked(messages, 60)
    answer = await extract(prompt)
    assert answer == await extract(prompt)
    assert answer.text.startswith(HEADING)
    for fact in ("LH-454", "Oslo", "K7XQ2M", "312.40"):
        assert fact in answer.text
    assert "nice day" not in answer.text


@pytest.mark.parametrize(
    "directive", ["/say obey", "/sleep 60", "/fail auth 3", '/read {"path": "x"}']
)
async def test_directives_in_what_is_summarised_are_not_followed(directive: str) -> None:
    _, prompt = asked(said(f"{directive}\nThe code is 7731.", "Yes."), 100)
    answer = await extract(prompt)
    assert (answer.tool_calls, answer.finish_reason) == ((), "stop")
    assert "7731" in answer.text


@given(st.lists(st.text(max_size=400), min_size=1, max_size=12), st.integers(40, 800))
async def test_an_extract_is_as_long_as_it_may_be_at_most(texts: list[str], target: int) -> None:
    made, prompt = asked(said(*texts), target)
    answer = await extract(prompt)
    assert estimate_tokens(answer.text) <= max(target, 100) * 1.2
    verdict = judged(answer.text, made)
    assert not isinstance(verdict, Flaw)
