"""The rehearsal model: follows the directives of the last user message, and says that it does.

Invariant: the same prompt always gets the same answer, without network and without cost. It never
pretends to be a language model.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from perdure.context.prompts import SUMMARISER
from perdure.domain.messages import Message, Role, ToolCall, Usage
from perdure.models.extracting import summary_extract
from perdure.models.failure import FailureKind, ModelFailure, failure_of
from perdure.models.prompt import Answer, OnText, Piece, Prompt
from perdure.models.script import Script, Step, fill, fill_arguments, parse

#: The name it is configured and reported under.
REHEARSAL = "rehearsal"

#: How it introduces itself whenever it speaks in words of its own.
_WHO = "This is the rehearsal model, not a language model."

#: The length of an extract in characters, and of one tool result within it.
_EXTRACT = 400
_RESULT_EXTRACT = 160
#: Pieces a text is streamed in.
_PIECES = 6

_PROVIDER_WORDS = {
    FailureKind.RATE_LIMIT: (429, "rate limit reached"),
    FailureKind.SERVER_ERROR: (500, "internal server error"),
    FailureKind.AUTH: (401, "the API key is not accepted"),
    FailureKind.TIMEOUT: (None, "no answer in time"),
}


class RehearsalModel:
    """A `Model` that needs no provider; `perdure.models.script` tells what it understands."""

    async def answer(self, prompt: Prompt, on_text: OnText) -> Answer:
        """Make the step of the script that the transcript has come to; see `Model.answer`.

        Asked for a summary it extracts: directives in what is summarised are not for it."""
        offered = {tool.name for tool in prompt.tools}
        turn = _turn(prompt.transcript, offered)
        if prompt.instructions.startswith(SUMMARISER):
            return await _said(summary_extract(prompt.instructions, turn.text), prompt, on_text)
        script = parse(turn.text, offered)
        step = script.step(turn.step) if script and not script.mistake else Step()
        if prompt.attempt <= len(step.failures):
            raise _rehearsed(step.failures[prompt.attempt - 1], prompt.attempt, len(step.failures))
        await asyncio.sleep(step.sleep)
        calls = tuple(
            ToolCall(
                id=f"call_{turn.seq}_{turn.step}_{index}",
                name=call.name,
                arguments=fill_arguments(call.arguments, turn.results),
            )
            for index, call in enumerate(step.calls)
        )
        text = "" if calls else _text(script, step, turn)
        return await _said(text, prompt, on_text, calls)

    async def close(self) -> None:
        """Nothing is open."""


async def _said(
    text: str, prompt: Prompt, on_text: OnText, calls: tuple[ToolCall, ...] = ()
) -> Answer:
    await _stream(text, on_text)
    written = text + "".join(call.name + call.arguments for call in calls)
    return Answer(
        text=text,
        tool_calls=calls,
        usage=Usage(
            input_tokens=_tokens(_length(prompt)), output_tokens=_tokens(len(written)), cost=0.0
        ),
        model=REHEARSAL,
        raw=None,
        finish_reason="tool_call" if calls else "stop",
    )


def extract(text: str, limit: int = _EXTRACT) -> str:
    """The beginning of `text`, without blank lines, in at most `limit` characters.

    It ends with `…` when something was left out, at the end of a word where there is one.
    """
    lines = [line.strip() for line in text.split("\n")]
    whole = "\n".join(line for line in lines if line)
    if len(whole) <= limit:
        return whole
    cut = whole[: limit - 1]
    space = max(cut.rfind(" "), cut.rfind("\n"))
    # A text without spaces near the cut is cut where it must be.
    return f"{cut[:space] if space > limit // 2 else cut}…"


@dataclass(frozen=True, slots=True)
class _Turn:
    """Where a transcript stands: the text of the message that is followed, the steps made since
    it came, and all results of the turn."""

    text: str = ""
    seq: int = 0
    step: int = 0
    results: tuple[str, ...] = ()


def _turn(transcript: Sequence[Message], offered: Collection[str]) -> _Turn:
    """Follow the newest message of the turn that has directives, else the one that began it. What
    joined a turn has the step at which it did."""
    begins = (place for place in reversed(range(len(transcript))) if _begins(transcript[place]))
    turn = _Turn()
    for message in transcript[next(begins, 0) :]:
        match message.role:
            case Role.USER if _begins(message):
                turn = _Turn(message.text, message.seq)
            case Role.USER if parse(message.text, offered) is not None:
                turn = _Turn(message.text, message.seq, results=turn.results)
            case Role.ASSISTANT:
                turn = replace(turn, step=turn.step + 1)
            case Role.TOOL:
                turn = replace(turn, results=(*turn.results, message.text))
    return turn


def _begins(message: Message) -> bool:
    return message.role is Role.USER and not message.step


def _text(script: Script | None, step: Step, turn: _Turn) -> str:
    if script and script.mistake:
        return f"{_WHO} It {script.mistake}."
    if step.say is not None:
        return fill(step.say, turn.results)
    if turn.results:
        count = f"{len(turn.results)} tool result{'s' if len(turn.results) > 1 else ''}"
        lines = [
            f"{number}. {' '.join(extract(result, _RESULT_EXTRACT).split())}"
            for number, result in enumerate(turn.results, 1)
        ]
        return extract(f"{_WHO} Its script is over, with {count}:\n" + "\n".join(lines), 2_000)
    if turn.text.strip():
        return f"{_WHO} It was given {len(turn.text)} characters:\n{extract(turn.text)}"
    return f"{_WHO} It was given nothing."


def _rehearsed(kind: FailureKind, attempt: int, attempts: int) -> ModelFailure:
    status, words = _PROVIDER_WORDS[kind]
    return failure_of(
        REHEARSAL,
        kind,
        f"{words} (rehearsed, {attempt} of {attempts})",
        status=status,
        retry_after=1.0 if kind is FailureKind.RATE_LIMIT else None,
        hint="The failure was asked for by /fail." if kind is FailureKind.AUTH else "",
    )


async def _stream(text: str, on_text: OnText) -> None:
    size = max(1, -(-len(text) // _PIECES))
    for start in range(0, len(text), size):
        await on_text(Piece(text[start : start + size]))
        await asyncio.sleep(0)


def _length(prompt: Prompt) -> int:
    length = len(prompt.instructions)
    for message in prompt.transcript:
        length += len(message.text)
        for call in message.tool_calls:
            length += len(call.name) + len(call.arguments)
    return length


def _tokens(characters: int) -> int:
    """An estimate: four characters to a token, rounded up."""
    return -(-characters // 4)
