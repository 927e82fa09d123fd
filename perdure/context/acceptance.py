"""Whether what a model wrote may stand for what it was given.

Invariant: nothing empty, nothing as large as its source, nothing far beyond its target, no
refusal. What is accepted is stored as the model meant it; it is escaped again wherever it is shown.
"""

from __future__ import annotations

import re
from enum import StrEnum

from perdure.context.escaping import unescaped
from perdure.context.planning import Pass
from perdure.context.presentation import presented_tokens
from perdure.context.tokens import estimate_tokens
from perdure.domain.messages import Frozen

#: Longer texts that begin so are summaries of somebody's refusal.
_REFUSAL_TOKENS = 80
_REFUSAL = re.compile(
    r"(?:i(?:['’]m| am) (?:very |so |really )?sorry|sorry\b|i (?:can(?:no|['’])t|won['’]t)"
    r"|i(?:['’]m| am) (?:unable|not able)|as an ai\b|unfortunately,? i)",
    re.IGNORECASE,
)
_WRAPPED = re.compile(r"<(summary|history)\b[^<>]*>\s*(.*?)\s*</\1\s*>", re.DOTALL | re.IGNORECASE)


class Flaw(StrEnum):
    """Why an output cannot be taken."""

    EMPTY = "empty"
    REFUSAL = "refusal"
    TOO_LONG = "too long"
    NOT_SMALLER = "not smaller than its source"


class Written(Frozen):
    """An accepted text, and what it takes of a context, presented."""

    text: str
    tokens: int


def judged(output: str, made: Pass) -> Written | Flaw:
    """The `output` of a summariser for the pass `made` as it may be published, or what is wrong
    with it."""
    text = _cleaned(output)
    if not text:
        return Flaw.EMPTY
    tokens = presented_tokens(text)
    if tokens >= made.source_tokens:
        return Flaw.NOT_SMALLER
    if tokens > made.most_tokens:
        return Flaw.TOO_LONG
    if _REFUSAL.match(text) and estimate_tokens(text) < _REFUSAL_TOKENS:
        return Flaw.REFUSAL
    return Written(text=text, tokens=tokens)


def _cleaned(output: str) -> str:
    # NUL cannot be stored by every database.
    text = unescaped(output).replace("\0", "").strip()
    wrapped = _WRAPPED.fullmatch(text)
    return wrapped.group(2) if wrapped else text
