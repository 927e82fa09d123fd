"""What stands in a context for a text that is too long for it: where it lies, and what is in it.

Invariant: pure and total. A stub never has more bytes than its limit, whatever the text holds; an
outline is a guess by the text's own form, and a text that has none shows its head and tail.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue
from pydantic_core import from_json

from perdure.domain.messages import Frozen
from perdure.workspace import code_outline, json_outline, table_outline

#: What a stub takes of a context, in bytes: enough to know where to look, about 2,000 tokens.
STUB_BYTES = 8_000
#: Longer texts are not looked into, in characters: it takes seconds and many times their memory.
MOST_LOOKED_INTO = 10_000_000

#: The beginning of a text says most of what it is; the end, how it came out.
HEAD_SHARE = 0.6

#: Lines of JSON that are looked at, and the fewest that make a text JSON lines.
_JSON_LINES = 1_000
_FEWEST_JSON_LINES = 2


class Outline(Frozen):
    """What kind of text it is, in words, and what is in it, line by line."""

    kind: str
    lines: tuple[str, ...]


def stub_of(text: str, path: str, limit: int = STUB_BYTES) -> str:
    """What stands for `text`, which lies whole in the workspace at `path`: at most `limit` bytes.

    The name in `path` tells what the text is, where it has an ending that does.
    """
    text = text.encode(errors="replace").decode()
    name = path.rpartition("/")[2].encode(errors="replace").decode()
    where = f'The whole is in the workspace: use read with path="{path}", or grep in it.'
    note = f"a text of {measure(text)}. {where}".encode(errors="replace").decode()
    return stub(text, note, limit, outline(text, name))


def stub(text: str, note: str, limit: int, found: Outline | None) -> str:
    """`note` with the outline that was `found`, as much of it as fits into `limit` bytes; without
    one, with the head and tail of `text`."""
    if found is None:
        return cut(text.encode(), f"\n\n[… cut: {note}]\n\n", limit)
    head = f"[cut: {note} What follows is only its outline: {found.kind}.]\n\n"
    return _fitting(head, found.lines, limit)


def outline(text: str, name: str = "") -> Outline | None:
    """What is in `text`, if it is JSON, a table, source code or a document with headings.

    `name` is that of its file, where it has one that says something.
    """
    if len(text) > MOST_LOOKED_INTO:
        return None
    text = text.encode(errors="replace").decode()
    found = _json(text) or table_outline.table(text) or code_outline.outline(text, name)
    return None if found is None else Outline(kind=found[0], lines=tuple(found[1]))


def measure(text: str) -> str:
    """The size of a text, in words."""
    size = len(text.encode(errors="replace"))
    lines = text.count("\n") + (not text.endswith("\n") and bool(text))
    return f"{size} bytes in {lines} line{'' if lines == 1 else 's'}"


def cut(data: bytes, note: str, limit: int) -> str:
    """The head and tail of `data`, which is UTF-8, around `note`, in at most `limit` bytes."""
    room = limit - len(note.encode())
    if room <= 0:
        return prefix(note.encode(), limit)
    head = int(room * HEAD_SHARE)
    return prefix(data, head) + note + _suffix(data, room - head)


def prefix(data: bytes, size: int) -> str:
    """The beginning of `data`, which is UTF-8, in at most `size` bytes."""
    # Only a character cut in two is ignored: the data is valid.
    return data[: max(size, 0)].decode(errors="ignore")


def _suffix(data: bytes, size: int) -> str:
    return data[len(data) - size :].decode(errors="ignore")


def _fitting(head: str, lines: Sequence[str], limit: int) -> str:
    room = limit - len(head.encode())
    if room <= 0:
        return prefix(head.encode(), limit)
    more = f"… and {len(lines)} more lines of outline\n"
    kept = []
    for number, line in enumerate(lines):
        size = len(line.encode()) + 1
        if size > room - (len(more.encode()) if number + 1 < len(lines) else 0):
            kept.append(prefix(f"… and {len(lines) - number} more lines of outline".encode(), room))
            break
        room -= size
        kept.append(f"{line}\n")
    return head + "".join(kept)


def _json(text: str) -> tuple[str, list[str]] | None:
    if text.lstrip(" \t\r\n")[:1] not in ("{", "["):
        return None
    value = _parsed(text)
    if isinstance(value, list | dict):
        return "JSON", [*json_outline.shape([value]), "sample:", json_outline.sample(value)]
    return _json_lines(text)


def _json_lines(text: str) -> tuple[str, list[str]] | None:
    lines = [line for line in text.split("\n") if line.strip()]
    values = [_parsed(line) for line in lines[:_JSON_LINES]]
    if len(lines) < _FEWEST_JSON_LINES or not all(isinstance(one, list | dict) for one in values):
        return None
    looked = "" if len(lines) <= _JSON_LINES else f"; the shape of the first {_JSON_LINES}"
    told = [f"{len(lines)} lines of JSON{looked}", *json_outline.shape(values)]
    return "JSON lines", [*told, "first line:", json_outline.sample(values[0])]


def _parsed(text: str) -> JsonValue:
    """The JSON value of `text`; None also for what is no JSON."""
    try:
        value: JsonValue = from_json(text)
    except ValueError:
        return None
    return value
