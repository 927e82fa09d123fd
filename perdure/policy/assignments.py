"""Secrets known by their name: `password: …`, `token=…`, `--api-key …`, `Authorization: …`.

Invariant: a name alone is no secret. The value beside it must look like one: a placeholder, a
word of prose, a type, a path or an expression in code does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from detect_secrets.plugins.keyword import DENYLIST

from perdure.policy.findings import Span
from perdure.policy.patterns import over_image
from perdure.policy.shape import is_placeholder, mixing

KIND = "named-secret"

#: Names of something a person chose: short and simple values are likely there.
_CHOSEN = r"password|passwd|passphrase|passcode|pwd|contrase.a|passwort|kennwort|senha"
#: Names of something a machine made.
_ISSUED = "|".join(
    [word.replace("_?", "[_ .-]?") for word in DENYLIST if not re.fullmatch(_CHOSEN, word)]
    + ["access[_ .-]?key", "token", "credential", "signing[_ .-]?key", "encryption[_ .-]?key"]
)
_SUFFIX = r"(?:[_ -]?(?:key|value|string|text|prod|production|dev|live|staging|[0-9]{1,3}))?"
#: In each expression: the name if a person chose the value, the name if not, the sign between,
#: and what opens the value.
_NAME = rf"(?:({_CHOSEN}|\bpass|\bpw)|({_ISSUED})){_SUFFIX}"
_CLOSE = r"(?:\\?[\"'`\])*]){0,4}"
_TYPED = r":[ ]{0,4}[A-Za-z][A-Za-z0-9_.\[\]| ]{0,30}="
_SIGN = rf"[ \t]{{0,4}}({_TYPED}|:=|=>|={{1,3}}|:\*{{0,2}})\s{{0,8}}"
_OPEN = r"((?:\\?[\"'`(\[*@]){0,4})"
_ASSIGNMENT = f"(?i){_NAME}{_CLOSE}{_SIGN}{_OPEN}"
_OPTION = rf"(?i)(?:^|\s)--?[a-z0-9-]{{0,20}}{_NAME}([ =]{{1,4}}){_OPEN}"
_TOLD = rf"(?i)\b({_CHOSEN})()[ \t]{{1,4}}(is|was|ist|es|est)[ \t:]{{1,4}}{_OPEN}"
_HEADER = r"(?i)\b(?:bearer|(?:authorization|auth)[\"']?[ ]?[:=][ ]?[\"']?(?:basic|token))[ ]{1,4}"

_VALUE = re.compile(r"[^\s\"'`,;<>\\]{1,400}")
_HEADER_VALUE = re.compile(r"[A-Za-z0-9._~+/=-]{16,2000}")
_KEY = re.compile(rf"(?i)(?:{_NAME})$")

#: What makes a token a number that only counts, not one that opens.
_HARMLESS_PREFIX = re.compile(
    r"(?i)(?:page|next|prev|previous|continuation|cursor|sync|idempotency|cancel|max|min|num|"
    r"total|input|output|prompt|completion|public)[_ .-]?$"
)
_ULID = re.compile(r"(?:[a-z0-9]+[_-])*[0-7][0-9A-HJKMNP-TV-Z]{25}")
_UUID = re.compile(r"(?i)[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_SESSION_KEY = re.compile(r"[^:~]+:[^:~]+(?:~(?:peer|channel|guild|thread|agent|run)~[^~]+)*")
_COUNT = re.compile(r"[\d.,:_/+-]+[a-zA-Z%]{0,3}")
_ADDRESS = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://|[\w.+-]+@[\w-]+\.[\w.]+$|/|~/|\.{1,2}/|[A-Za-z]:\\"
)
_CALL = re.compile(r"[A-Za-z_][\w.]*[(\[{]")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_SNAKE = re.compile(r"_?[a-z]+\d{0,2}(?:_[a-z]+\d{0,2})+|[A-Z]+\d{0,2}(?:_[A-Z]+\d{0,2})+")
_SLUG = re.compile(r"[a-z0-9]+(?:[-_.][a-z0-9]+)+")
_TECHNICAL = re.compile(
    r"(?i)(?:sha|md|aes|rsa|int|uint|float|utf|base|hs|rs|es|hmac|bcrypt|argon|scrypt|pbkdf|oauth|"
    r"ipv|http|v|x|cl|r|o)[-_]?\d{1,4}(?:[-_]?[a-z]{0,4}\d?)?"
)
_INNER_SIGN = re.compile(r"(?<=\w)[!@#$%^&*+=?~|]+(?=\w)")


def find_assignments(text: str, raw: bytes) -> Iterator[Span]:
    """Secrets with a name beside them in `text`; `raw` is its one-byte-a-character image."""
    for pattern in (_ASSIGNMENT, _OPTION, _TOLD):
        done = 0
        for match in over_image(pattern).finditer(raw):
            value = _VALUE.match(text, match.end())
            if value is None or value.start() < done:
                continue
            chosen = match[1] is not None
            if not chosen and _is_harmless(text, match.start(2)):
                continue
            quoted = any(quote in match[4] for quote in (b'"', b"'", b"`"))
            if quoted and text[value.end() : value.end() + 1] in (" ", "\t"):
                continue  # a sentence, not one word
            if pattern is _TOLD and not _stands_out(value[0]):
                continue
            in_code = b"=" in match[3] and not quoted
            if _looks_real(value[0], chosen, quoted, in_code):
                done = value.end()
                yield Span(value.start(), done, KIND)
    for match in over_image(_HEADER).finditer(raw):
        value = _HEADER_VALUE.match(text, match.end())
        if value and any(map(str.isdigit, value[0])) and not _SLUG.fullmatch(value[0]):
            yield Span(value.start(), value.end(), "authorization")


def is_secret_argument(name: str, value: str) -> bool:
    """Whether an argument called `name` with the value `value` holds a secret."""
    named = _KEY.search(name[-64:])
    if named is None or any(map(str.isspace, value)) or len(value) > 4_000:
        return False
    chosen = named[1] is not None
    if not chosen and _HARMLESS_PREFIX.search(name[-64:][: named.start()]):
        return False
    return _looks_real(value, chosen, quoted=True, in_code=False)


def _stands_out(word: str) -> bool:
    """Whether a word in a sentence is none of the sentence's own."""
    core = word.rstrip(".,:;!?)")
    return mixing(core) >= 0.15 and not _SLUG.fullmatch(core)


def _is_harmless(text: str, start: int) -> bool:
    return _HARMLESS_PREFIX.search(text[max(0, start - 16) : start]) is not None


def _looks_real(value: str, chosen: bool, quoted: bool, in_code: bool) -> bool:
    """Whether `value` looks like a secret that a person chose, or else one that was issued."""
    core = value.rstrip("]).,:;*}").rstrip()
    if len(core) < (6 if chosen else 8) or is_placeholder(value):
        return False
    digits = any(map(str.isdigit, core))
    letters = any(map(str.isalpha, core))
    if not digits and not (chosen and letters):
        return False
    if sum(char.isascii() for char in core) < 0.7 * len(core):
        return False  # a sentence in a script that needs no spaces
    if _ADDRESS.match(core) or _ULID.fullmatch(core) or _TECHNICAL.fullmatch(core):
        return False
    if "~" in core and _SESSION_KEY.fullmatch(core):
        return False
    if not quoted and (_CALL.match(core) or _DOTTED.fullmatch(core) or _SNAKE.fullmatch(core)):
        return False
    if in_code and core.isidentifier() and re.search(rf"(?i){_CHOSEN}|{_ISSUED}", core):
        return False
    if chosen:
        if core.isdigit():
            return True
        if _COUNT.fullmatch(core):
            return False
        return letters and (digits or _INNER_SIGN.search(core) is not None)
    if not letters or _COUNT.fullmatch(core) or _UUID.fullmatch(core):
        return False
    if _SLUG.fullmatch(core):
        return len(core) >= 24 or (len(core) >= 16 and mixing(core) >= 0.25)
    return len(core) >= 12 or mixing(core) >= 0.25
