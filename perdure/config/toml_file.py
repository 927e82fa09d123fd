"""A TOML file whose keys know their lines.

Invariant: all grammar is tomllib's. It gives no positions, but a TOML statement is a run of
whole lines that parses on its own, and no shorter run of them does: so the lines of each
statement are found by asking tomllib where it ends.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from perdure.config.keys import Key
from perdure.domain.errors import InvalidArgument

_POSITION = re.compile(r"^(?P<what>.*?) \(at (line (?P<line>\d+), column (?P<column>\d+)|end.*)\)$")

#: A value that runs over several lines opens on the first of them and closes on the last. So
#: other lines need no parse, and a prompt of 2,000 lines costs two parses instead of 2,000.
_CLOSERS = {'"""': '"""', "'''": "'''", "[": "]", "{": "}"}


@dataclass(frozen=True)
class TomlFile:
    """The values of a file, and the first line of the statement that set each key."""

    path: Path
    values: dict[str, Any] = field(default_factory=dict)
    lines: Mapping[Key, int] = field(default_factory=dict)

    def nearest_line(self, key: Key) -> int | None:
        """The line of `key`, else of the innermost table around it that the file has."""
        return next(
            (self.lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in self.lines), None
        )


def read_toml(path: Path) -> TomlFile:
    """The TOML file at `path`.

    Raises:
        FileNotFoundError: if nothing is there.
        InvalidArgument: if it cannot be read, or is not TOML; with the line where it stops.
    """
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise  # the caller knows whether the file had to be there
    except IsADirectoryError:
        raise InvalidArgument(f"{path} is a directory, not a TOML file.") from None
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}.") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InvalidArgument(
            f"{path}, line {line}: the byte 0x{raw[error.start]:02X} is not UTF-8.",
            "Save the file as UTF-8.",
        ) from None
    try:
        values = tomllib.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"{path}, {_syntax_error(str(error), text)}") from None
    except RecursionError:
        raise InvalidArgument(f"{path} has arrays or tables nested too deeply.") from None
    return TomlFile(path, values, key_lines(text))


def key_lines(text: str) -> dict[Key, int]:
    """For each key and table of valid TOML, the first line of the statement that set it first.

    Keys inside an inline table or an array have the line of the whole statement.
    """
    lines: dict[Key, int] = {}
    table: Key = ()
    last_index: dict[Key, int] = {}
    for statement in _statements(text):
        if statement.is_header:
            table = _header_key(statement.values, last_index)
            found: Iterator[Key] = (table[:n] for n in range(1, len(table) + 1))
        else:
            found = _keys(statement.values, table)
        for key in found:
            lines.setdefault(key, statement.line)
    return lines


class _Statement(NamedTuple):
    line: int
    values: dict[str, Any]
    is_header: bool
    is_finished: bool = True


def _statements(text: str) -> Iterator[_Statement]:
    """Each `key = value` and each `[header]`; last, one that never ends, if there is one."""
    start, pending = 0, ""
    closers: list[str] = []
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        if not pending:
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            start = number
            closers = [close for opening, close in _CLOSERS.items() if opening in line]
        pending += line + "\n"
        if number > start and not any(close in line for close in closers):
            continue
        try:
            values = tomllib.loads(pending)
        except ValueError:
            continue
        yield _Statement(start, values, is_header=pending.lstrip().startswith("["))
        pending = ""
    if pending:
        yield _Statement(start, {}, is_header=False, is_finished=False)


def _header_key(values: dict[str, Any], last_index: dict[Key, int]) -> Key:
    """The key that a header opens: `[[rules]]`, seen twice, opens `("rules", 1)`."""
    key: Key = ()
    node: dict[str, Any] = values
    while node:
        name, inner = next(iter(node.items()))
        key = (*key, name)
        if isinstance(inner, list):
            last_index[key] = last_index.get(key, -1) + 1
            inner = inner[0]
        if key in last_index:
            key = (*key, last_index[key])
        node = inner
    return key


def _keys(value: object, prefix: Key) -> Iterator[Key]:
    """`prefix` and every key inside `value`."""
    if prefix:
        yield prefix
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _keys(inner, (*prefix, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _keys(inner, (*prefix, index))


def _syntax_error(message: str, text: str) -> str:
    position = _POSITION.match(message)
    if not position:
        return message
    what = position["what"]
    if "overwrite" in what or "twice" in what:
        what = f"{what}: a key or table that an earlier line has set already"
    if position["line"]:
        return f"line {position['line']}, column {position['column']}: {what}."
    unfinished = [s.line for s in _statements(text) if not s.is_finished]
    line = unfinished[0] if unfinished else text.count("\n") + 1
    return f"line {line}: what begins here is not finished at the end of the file."
