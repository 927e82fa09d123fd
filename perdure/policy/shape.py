"""How random a word looks, and what stands where a secret would.

Invariant: each answer depends on one short word alone, and takes time linear in it.
"""

from __future__ import annotations

import re
from itertools import pairwise

#: What people write in the place of a secret.
_PLACEHOLDER = re.compile(
    r"""(?ix)
    \$\{ | \$\( | \$[a-z_]+\d?$ | \{\{ | \{[\w.!:()]*\}$ | < | %\( | %s | %[a-z_]+%$ | \.\.\. | …
    | \[REDACTED | \[?\*{2,} | (?:x{3,}|•{2,}|\.{3,}|_{3,}|-{3,}|0{6,}|\*+)$
    | (?:os\.)?environ | process\.env | (?:os\.)?getenv | env[.:(\[] | vault: | op:// | arn:
    | secrets?[./:] | !(?:env|secret|ref)\b
    """
)

#: Words that say "password" in an example, or "no password".
_EXAMPLE = re.compile(
    r"(?:pass(?:word|wd|phrase)?|pwd?|secret|token|(?:api_?)?key|user(?:name)?|change_?me|example|"
    r"placeholder|dummy|test|redacted|hidden|none|null|true|false|undefined|required|optional|"
    r"string|your[-_ ].*)"
)


def is_placeholder(value: str) -> bool:
    """Whether `value` stands for a secret without being one: `${TOKEN}`, `<key>`, `changeme`."""
    word = value.strip("\"'`()[]{}.,;:!*").casefold()
    return not word or bool(_PLACEHOLDER.match(value)) or bool(_EXAMPLE.fullmatch(word))


def is_wordy(value: str) -> bool:
    """Whether `value` is words in one case joined by dashes or underscores, without a number."""
    parts = re.split(r"[-_.]+", value)
    return len(parts) > 1 and value == value.lower() and all(part.isalpha() for part in parts[1:])


def mixing(value: str) -> float:
    """How often neighbours change between lower case, upper case and digits: 0 to 1.

    Random base64 has about 0.6, random hexadecimal 0.4, an identifier or a path 0.2 or less.
    Other characters are left out.
    """
    kinds = [
        "d" if char.isdigit() else "u" if char.isupper() else "l"
        for char in value
        if char.isalnum()
    ]
    if len(kinds) < 2:
        return 0.0
    return sum(a != b for a, b in pairwise(kinds)) / (len(kinds) - 1)
