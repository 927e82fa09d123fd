"""What the rehearsal model makes of a request for a summary: an extract.

Invariant: deterministic, and no word of it is the model's own but the first line. It keeps to the
length asked for, and prefers what cannot be guessed: numbers, names, paths, what people said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from perdure.context.tokens import estimate_tokens

#: The first line says whose words follow.
HEADING = "Extract by the rehearsal model:"
#: When no length is asked for, in tokens.
_DEFAULT_TARGET = 512
#: Of one sentence so many characters are taken; a longer one is cut at a word.
_SENTENCE = 240

_TARGET = re.compile(r"\((\d+) tokens\)")
_HISTORY = re.compile(r"<history>\n(.*)\n</history>", re.DOTALL)
#: A line of the request that says who speaks, or what is summarised.
_HEADER = re.compile(r"<(?:#\d+ (?P<who>.+) \d\d:\d\d|summary of .+|day .+)>")
_SENTENCES = re.compile(r"(?<=[.!?。！？])\s+|\n+")
#: What tells much in few words: figures, identifiers, paths, names inside a sentence.
_FACT = re.compile(r"\b\w*\d[\w.,:/@-]*|\b\w+[_./@:-]\w[\w./@:-]*|(?<=[a-z,;:] )[A-Z]\w+|`[^`]+`")


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence, its place, and what it is worth: a first sentence more than the rest."""

    place: int
    text: str
    worth: int


def summary_extract(instructions: str, text: str) -> str:
    """The extract that a summariser's request is answered with; never empty for a text that says
    something, and at most as long as the request allows."""
    asked = _TARGET.search(instructions)
    room = int(asked[1]) if asked else _DEFAULT_TARGET
    history = _HISTORY.search(text)
    sentences = _sentences(history[1] if history else text)
    room -= estimate_tokens(HEADING) + 1
    chosen: list[_Sentence] = []
    for sentence in sorted(sentences, key=lambda one: (-one.worth, one.place)):
        cost = estimate_tokens(sentence.text) + 1
        if cost <= room:
            chosen.append(sentence)
            room -= cost
    if not chosen and sentences:
        chosen = [sentences[0]]
    told = [one.text for one in sorted(chosen, key=lambda one: one.place)]
    return "\n".join([HEADING, *told])


def _sentences(history: str) -> list[_Sentence]:
    found: list[_Sentence] = []
    who, first = "", True
    said: set[str] = set()
    for line in history.split("\n"):
        header = _HEADER.fullmatch(line)
        if header is not None:
            who, first = header["who"] or "", True
            continue
        for piece in _SENTENCES.split(line):
            words = " ".join(piece.split())
            if not words or words == HEADING or words in said:
                continue
            said.add(words)
            facts = len(_FACT.findall(words))
            # What is said first says most of what it is about; people weigh more than tools.
            worth = 3 * min(facts, 4) + 2 * first + who.startswith("user")
            spoken = f"{who}: {words}" if first and who else words
            found.append(_Sentence(len(found), _short(spoken), worth))
            first = False
    return found


def _short(sentence: str) -> str:
    if len(sentence) <= _SENTENCE:
        return sentence
    cut = sentence[: _SENTENCE - 1]
    space = cut.rfind(" ")
    return f"{cut[:space] if space > _SENTENCE // 2 else cut}…"
