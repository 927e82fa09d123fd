"""Secrets known by nothing but their randomness.

Invariant: only a word that cannot be anything else counts. Hashes, identifiers, paths, encoded
text and images, public keys and the lines of a longer encoding are told apart first.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

from detect_secrets.plugins.high_entropy_strings import Base64HighEntropyString

from perdure.policy.findings import Span
from perdure.policy.patterns import over_image
from perdure.policy.shape import mixing

KIND = "high-entropy"

#: Bits a character: detect-secrets' own bound for base64.
_ENTROPY = Base64HighEntropyString(limit=4.5)

#: Shorter words are too often ids; longer ones are data. 32 characters hold 192 bits.
_WORD = r"[A-Za-z0-9+/_=-]{32,}"
_SHORTEST, _LONGEST = 32, 128

#: Random base64 changes between cases and digits at about 0.62 of its places.
_MIXING = 0.4

#: Digests in their usual dress: `sha256-…`, `SHA256:…`, `h1:…`, `integrity=…`, `etag: …`.
_DIGEST = re.compile(
    r"(?i)(?:(?:sha-?\d{1,3}|md5|h1|blake\w{0,4})[-:=]|(?:etag|digest|integrity|checksum|hash|"
    r"fingerprint|signature|cursor|(?:page|next)[\w-]{0,10}token)[\"']?\s?[:=]\s?[\"']?)$"
)
#: What joins a word to the address, path or list around it.
_JOINTS = tuple("/?&#@.%~,")
_ULID = re.compile(r"(?:[A-Za-z0-9]+[_-])*[0-7][0-9A-HJKMNP-TV-Z]{25}(?:[_-][a-z0-9]+)*")
#: The first characters of encoded images, archives, documents and public keys.
_MAGIC = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR", "JVBERi", "UEsDB", "H4sI", "AAAA", "MII", "Qk0")


def find_random(text: str, raw: bytes) -> Iterator[Span]:
    """The words of `text` that look like nothing but a key; `raw` is its one-byte image."""
    for match in over_image(_WORD).finditer(raw):
        start, end = match.span()
        if end - start > _LONGEST or _belongs_to_more(text, start, end):
            continue
        if _is_key(text[start:end].strip("-=_")):
            yield Span(start, end, KIND)


def _is_key(word: str) -> bool:
    if len(word) < _SHORTEST or word.islower() or word.isupper() or word.startswith(_MAGIC):
        return False
    if sum(map(str.isdigit, word)) < 2 or mixing(word) < _MIXING or _ULID.fullmatch(word):
        return False
    if _ENTROPY.calculate_shannon_entropy(word) <= _ENTROPY.entropy_limit:
        return False
    return not _is_encoded_text(word)


def _belongs_to_more(text: str, start: int, end: int) -> bool:
    """Whether the word is part of an address, a path, a digest or a longer encoding."""
    before = text[max(0, start - 200) : start]
    prefix = before.split()[-1] if before and not before[-1].isspace() else ""
    if "://" in prefix or "data:" in prefix or prefix.endswith(_JOINTS):
        return True
    after = text[end : end + 2]
    if after[:1] in _JOINTS and after[1:].isalnum():
        return True
    return _DIGEST.search(before[-60:]) is not None or _is_one_of_many_lines(text, start, end)


def _is_encoded_text(word: str) -> bool:
    """Whether `word` is the base64 of something a person can read."""
    padded = word + "=" * (-len(word) % 4)
    try:
        raw = base64.b64decode(padded.translate({45: 43, 95: 47}), validate=True)
    except (binascii.Error, ValueError):
        return False
    text = raw.decode("utf-8", errors="replace")
    strange = sum(char == "\N{REPLACEMENT CHARACTER}" or not _is_readable(char) for char in text)
    return strange <= len(text) // 20


def _is_readable(char: str) -> bool:
    return char.isprintable() or char in "\t\r\n"


def _is_one_of_many_lines(text: str, start: int, end: int) -> bool:
    """Whether the line above or below is all of one long word: wrapped data, not a key."""
    above = text[max(0, start - 90) : start]
    below = text[end : end + 90]
    return (
        re.search(r"[A-Za-z0-9+/=_-]{40}\s{0,8}\n\s{0,8}$", above) is not None
        or re.match(r"\s{0,8}\n\s{0,8}[A-Za-z0-9+/=_-]{40}", below) is not None
    )
