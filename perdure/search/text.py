"""How text is compared: folded, and cut into the words and symbols that an index keeps.

Invariant: a query and a text pass through the same functions here, whichever engine searches, so
what an index says of a text is what the text says.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache, lru_cache

#: Scripts written without spaces, one character of which is a word: Thai and Lao, Myanmar, Khmer,
#: Hangul (which glues particles to words), ideographs and kana. Inside a character class.
_CONTINUOUS = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029"
    "\u3031-\u3035\u303b\u303c\u3041-\u309f\u30a1-\u30fa\u30fc-\u318f\u31a0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U0001b000-\U0001b16f"
    "\U00020000-\U0003ffff"
)
#: Elsewhere a word is letters, digits and the marks that combine with them; `_` parts words.
_LETTER = rf"[^\W_{_CONTINUOUS}]"

#: What phones and word processors write for ASCII; variation selectors, which only choose between
#: looks of one character; and what no database takes: control characters and halves of pairs.
_ALIKE = {
    **dict.fromkeys(map(ord, "‘’‛ʼ"), "'"),
    **dict.fromkeys(map(ord, "“”„‟"), '"'),
    **dict.fromkeys((0xFE0E, 0xFE0F), None),
    **dict.fromkeys((code for code in range(32) if not chr(code).isspace()), " "),
    0x7F: " ",
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}
#: Most texts have none of them, and to look is many times faster than to translate.
_ALIKE_IN = re.compile(f"[{re.escape(''.join(map(chr, _ALIKE)))}]")
_ASCII_WORD = re.compile("[a-z0-9]+")
_ASCII_SYMBOL = re.compile(r"[^a-z0-9\s]")


def fold(text: str) -> str:
    """`text` as it is compared: NFKC, case folded, look-alikes of ASCII quotes unified."""
    text = _unified(text)
    if text.isascii():
        return text.lower()
    # NFKC writes out, among others, the apostrophe of "ŉ".
    return _unified(_composed(_composed(text).casefold()))


def _unified(text: str) -> str:
    return text.translate(_ALIKE) if _ALIKE_IN.search(text) else text


def _composed(text: str) -> str:
    if unicodedata.is_normalized("NFKC", text):
        return text
    return unicodedata.normalize("NFKC", text)


def words(folded: str) -> list[str]:
    """The words of a folded text in order; each character of a continuous script is one."""
    return (_ASCII_WORD if folded.isascii() else _patterns()[0]).findall(folded)


def symbols(folded: str) -> set[str]:
    """The other visible characters of a folded text: punctuation, signs, emoji."""
    return set((_ASCII_SYMBOL if folded.isascii() else _patterns()[1]).findall(folded))


@lru_cache(maxsize=4_096)
def is_lettered(character: str) -> bool:
    """Whether a folded character is of a word that its neighbours may belong to."""
    return _patterns()[2].match(character) is not None


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Words, symbols, and one character of a word that is not a word itself."""
    marks = _marks()
    return (
        re.compile(f"[{_CONTINUOUS}]|(?:{_LETTER}+|[{marks}]+)+"),
        re.compile(rf"(?=[\W_])[^\s{_CONTINUOUS}{marks}]"),
        re.compile(f"{_LETTER}|[{marks}]"),
    )


def _marks() -> str:
    """Combining marks outside the continuous scripts, for use inside a character class."""
    continuous = re.compile(f"[{_CONTINUOUS}]")
    ranges: list[list[int]] = []
    for code in (*range(0x300, 0x1F000), *range(0xE0100, 0xE01F0)):
        if unicodedata.category(chr(code))[0] != "M" or continuous.match(chr(code)):
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)
