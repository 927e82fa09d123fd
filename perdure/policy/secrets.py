"""Secrets in text and in tool arguments: found, and taken out.

Invariant: what comes out of `redact_secrets` and `redact_arguments` has no finding left. Time is
linear in the text, and nothing is kept between calls, so threads may share this.

What is not found: a secret cut in pieces or encoded, a passphrase of plain words, a password in
prose that no name introduces. Labels, not detection, are what keeps a secret from flowing down.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import NamedTuple

from pydantic import JsonValue

from perdure.policy.arguments import map_texts, texts_of
from perdure.policy.assignments import KIND, find_assignments, is_secret_argument
from perdure.policy.entropy import find_random
from perdure.policy.findings import Finding, Span, located, merged
from perdure.policy.patterns import MARK, image
from perdure.policy.tokens import find_tokens

#: Redacting can bring two halves together. Seldom once, hardly twice.
_ROUNDS = 4

#: No expression of ours matches across it.
_SEAM = "\n\0\n"


class ArgumentFinding(NamedTuple):
    """A secret somewhere inside the top-level argument `argument`."""

    argument: str
    kind: str


def find_secrets(text: str) -> tuple[Finding, ...]:
    """What in `text` looks like a credential, in order, without overlaps."""
    return located(text, merged(_spans(text)))


def redact_secrets(text: str) -> str:
    """`text` with every finding replaced by a mark that names its kind.

    If findings remain after a few rounds, which is not known to happen, nothing of the text does.
    """
    for _ in range(_ROUNDS):
        found = merged(_spans(text))
        if not found:
            return text
        text = _without(text, found)
    return MARK if find_secrets(text) else text


def find_in_arguments(arguments: Mapping[str, JsonValue]) -> tuple[ArgumentFinding, ...]:
    """What in a tool's arguments looks like a credential, keys included."""
    found: dict[ArgumentFinding, None] = {}
    texts, owners = [], []
    for argument, value in arguments.items():
        for name, text in texts_of({argument: value}):
            texts.append(text)
            owners.append(argument)
            if name and is_secret_argument(name, text):
                found[ArgumentFinding(redact_secrets(argument), KIND)] = None
    starts = list(accumulate((len(text) + len(_SEAM) for text in texts), initial=0))
    for span in merged(_spans(_SEAM.join(texts))):
        owner = owners[bisect_right(starts, span.start) - 1]
        found[ArgumentFinding(redact_secrets(owner), span.kind)] = None
    return tuple(found)


def redact_arguments(arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """`arguments` with the secrets in their texts and keys redacted, fit for an audit entry."""
    redacted = dict(arguments)
    for _ in range(_ROUNDS):
        if not find_in_arguments(redacted):
            return redacted
        redacted = _redacted_once(redacted)
    return {MARK: MARK} if find_in_arguments(redacted) else redacted


def _redacted_once(arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    texts = [text for _, text in texts_of(arguments)]
    whole = _SEAM.join(texts)
    # Together, since one text may be a secret only beside another, as in an AWS pair.
    pieces = _without(whole, merged(_spans(whole))).split(_SEAM)
    if len(pieces) != len(texts):
        pieces = [redact_secrets(text) for text in texts]  # a text held a seam of its own
    redacted = iter(pieces)

    def change(name: str | None, text: str) -> str:
        piece = next(redacted)
        return _mark(KIND) if name and is_secret_argument(name, text) else piece

    return map_texts(arguments, change)


def _spans(text: str) -> Iterator[Span]:
    raw = image(text)
    yield from find_tokens(text, raw)
    yield from find_assignments(text, raw)
    yield from find_random(text, raw)


def _without(text: str, spans: list[Span]) -> str:
    pieces, end = [], 0
    for span in spans:
        pieces += [text[end : span.start], _mark(span.kind)]
        end = span.end
    return "".join([*pieces, text[end:]])


def _mark(kind: str) -> str:
    return f"[REDACTED:{kind}]"
