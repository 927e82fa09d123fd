"""How text is compared: folded, and cut into the words and symbols that an index keeps.

Invariant: a query and a text pass through the same functions here, whichever engine searches, so
what an index says of a text is what the text says.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

#: Scripts written without spaces, one character of which is a word: Thai and Lao, Myanmar, Khmer,
#: Hangul (which glues particles to words), ideographs and kana. Inside a character class.
CONTINUOUS = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029"
    "\u3031-\u3035\u303b\u303c\u3041-\u309f\u30a1-\u30fa\u30fc-\u318f\u31a0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U0001b000-\U0001b16f"
    "\U00020000-\U0003ffff"
)
#: A letter or digit of a word, combining marks aside. The underscore parts words.
LETTER = rf"[^\W_{CONTINUOUS}]"

#: What phones and word processors write for ASCII; variation selectors, which only choose between
#: looks of one character; and what no database takes: control characters and halves of pairs.
_ALIKE = {
    **dict.fromkeys("‘’‛ʼ", "'"),
    **dict.fromkeys("“”„‟", '"'),
    "\ufe0e": None,
    "\ufe0f": None,
    **{chr(code): " " for code in range(32) if not chr(code).isspace()},
    "\x7f": " ",
}
_TRANSLATION = str.maketrans(_ALIKE)
_SURROGATES = re.compile("[\ud800-\udfff]")
_ASCII_WORD = re.compile("[a-z0-9]+")
_ASCII_SYMBOL = re.compile(r"[^a-z0-9\s]")


def fold(text: str) -> str:
    """`text` as it is compared: NFKC, case folded, look-alikes of ASCII quotes unified."""
    if text.isascii():
        # Nothing else applies to most texts, and it is many times faster.
        return text.translate(_TRANSLATION).lower() if _has_controls(text) else text.lower()
    text = _SURROGATES.sub("\ufffd", text).translate(_TRANSLATION)
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    # NFKC writes out, among others, the apostrophe of "ŉ".
    return folded.translate(_TRANSLATION)


def words(folded: str) -> list[str]:
    """The words of a folded text in order; each character of a continuous script is one."""
    return (_ASCII_WORD if folded.isascii() else _patterns()[0]).findall(folded)


def symbols(folded: str) -> set[str]:
    """The other visible characters of a folded text: punctuation, signs, emoji."""
    return set((_ASCII_SYMBOL if folded.isascii() else _patterns()[1]).findall(folded))


@cache
def marks() -> str:
    """Combining marks outside the continuous scripts, for use inside a character class."""
    ranges: list[list[int]] = []
    continuous = re.compile(f"[{CONTINUOUS}]")
    for code in (*range(0x300, 0x1F000), *range(0xE0100, 0xE01F0)):
        if unicodedata.category(chr(code))[0] != "M" or continuous.match(chr(code)):
            continue
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    return (
        re.compile(f"[{CONTINUOUS}]|(?:{LETTER}+|[{marks()}]+)+"),
        re.compile(rf"(?=[\W_])[^\s{CONTINUOUS}{marks()}]"),
    )


_CONTROLS = re.compile("[\x00-\x08\x0e-\x1b\x7f]")


def _has_controls(text: str) -> bool:
    return _CONTROLS.search(text) is not None
