"""Directives for the rehearsal model, put together.

Invariant: what is written for a session that is reached through others arrives there as it was
written.
"""

from __future__ import annotations

import json
import re

_REFERENCE = re.compile(r"(?=\\*\{\{)(?<!\\)")


def call(tool: str, **arguments: object) -> str:
    """The line that calls a tool. A trailing `_` of a name is left out: `async_`."""
    named = {name.removesuffix("_"): value for name, value in arguments.items()}
    return f"/{tool} {json.dumps(named, ensure_ascii=False)}"


def passed_on(text: str) -> str:
    """`text` for somebody behind the one who reads it: its references are left to them."""
    return _REFERENCE.sub(r"\\", text)


def script(*lines: str) -> str:
    """A message of these lines."""
    return "\n".join(lines)


def words_of(text: str) -> str:
    """What a message says to people: its lines without directives."""
    lines = (line for line in text.splitlines() if not is_directive(line))
    return "\n".join(line for line in lines if line.strip())


def is_directive(line: str) -> bool:
    """Whether a line of a message of the demo is there for the rehearsal model."""
    return line.startswith("/") or line == "---"
