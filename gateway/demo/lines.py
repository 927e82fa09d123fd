"""Somebody's lines of text, looked for where they must not be.

Invariant: a line is found however JSON writes it; a search that finds nothing is worth something
only if the same search finds the line where it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

#: A line that is looked for is long enough to be nobody's identifier.
_SHORTEST = 20


def lines_of(text: str) -> Iterator[str]:
    """The lines of a text that are words of somebody; of a JSON text, those of its strings."""
    try:
        strings = list(_strings(json.loads(text)))
    except ValueError:
        strings = [text]
    for string in strings:
        for line in string.splitlines():
            line = line.strip()
            if len(line) >= _SHORTEST and " " in line:
                yield line


def stands_in(line: str, content: bytes) -> bool:
    """Whether `content` holds the line, as it stands or as JSON writes it."""
    return any(form in content for form in _forms(line))


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part)


def _forms(line: str) -> Iterator[bytes]:
    yield line.encode()
    yield json.dumps(line, ensure_ascii=False)[1:-1].encode()
    yield json.dumps(line)[1:-1].encode()
    # A text in a text: a tool's arguments, kept as JSON inside of JSON.
    yield json.dumps(json.dumps(line)[1:-1])[1:-1].encode()
