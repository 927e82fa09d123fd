"""What an index keeps of a text, whichever engine keeps it.

A document is its words in order as our own tokens, each character of a script without spaces being
one, so that one character of Chinese or Japanese is found and several as a phrase; each symbol it
holds, so that an emoji is found; its session and its tenant.

Invariant: a token holds neither white space nor ASCII punctuation, so that no engine reads
anything into it.
"""

from __future__ import annotations

import re
from zlib import crc32

from perdure.search import fold, symbols, words

#: Longer words are indexed by their beginning: encoded data would only fill the index.
LONGEST_TOKEN = 64
#: Of a message so many characters give words whose parts can be found, and of a word so many: a
#: megabyte of words never heard of would hold the database's lock for seconds.
PARTED_TEXT = 100_000
_PARTED_WORD = 200
#: Shorter parts of words have no trigram.
SHORTEST_PART = 3
#: Base64, hexadecimal digests in a row, tokens: nobody looks for a part of them.
_ENCODED = re.compile("[a-z0-9+/=_-]{200,}")
#: A character of the private use areas, which no word holds: what begins with it is no text.
OURS = "\ue000"
#: Every document has it as a token of its own.
EVERYTHING = OURS


def word_tokens(text: str) -> list[str]:
    """The tokens of the words of a text, in order, and of its symbols."""
    folded = fold(text)
    return [*map(word_token, words(folded)), *map(symbol_token, sorted(symbols(folded)))]


def word_token(word: str) -> str:
    """The token of a folded word."""
    return word[:LONGEST_TOKEN]


def symbol_token(character: str) -> str:
    """The token of a symbol. Engines take ASCII symbols for spaces, and everything beyond ASCII
    for letters."""
    if character > "\x7f" and character != OURS:
        return character
    return f"{OURS}{ord(character):x}"


def session_token(number: int) -> str:
    """The token of the documents of a session."""
    return f"{OURS}s{number}"


def tenant_token(tenant: str) -> str:
    """The token of the documents of a tenant. Two tenants may share one: a token only narrows
    what is looked at."""
    return f"{OURS}t{crc32(tenant.encode()):x}"


def parted_words(text: str) -> list[str]:
    """The words of a text whose parts are to be found."""
    found = dict.fromkeys(words(_ENCODED.sub(" ", fold(text[:PARTED_TEXT]))))
    return [word[:_PARTED_WORD] for word in found if len(word) > SHORTEST_PART]


def flat(text: str) -> str:
    """The text of a summary as it is compared, white space being one."""
    return " ".join(fold(text).split())
