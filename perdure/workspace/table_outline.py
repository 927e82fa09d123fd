"""What is in a table of separated values: its columns and their kinds, its rows, the first ones.

Invariant: pure. A text is a table only if its rows agree on their columns; a sentence with commas
is none.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from itertools import islice

#: Rows that must agree before a text is taken for a table, and rows whose values are looked at.
_AGREEING = 50
_LOOKED_AT = 1_000
_FEWEST_ROWS = 3
_MOST_COLUMNS = 100
_SAMPLE_ROWS = 5
_CELL_CHARACTERS = 60
#: The names of columns are short; what is longer is a sentence.
_NAME_CHARACTERS = 40
_NAME_WORDS = 4

_DELIMITERS = {",": "CSV", "\t": "TSV", ";": "CSV with ;", "|": "table with |"}
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})(?:[eE][+-]?[0-9]{1,3})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9:.]{4,18}(?:Z|[+-][0-9:]{4,6})?)?")


def table(text: str) -> tuple[str, list[str]] | None:
    """What kind of table `text` is, and its outline as lines; None if it is none."""
    beginning = text[:200_000]
    # Of a cut beginning the last line is half a row.
    whole = len(beginning) == len(text)
    first = beginning[: max(beginning.find("\n"), 0)]
    for delimiter, kind in _DELIMITERS.items():
        if delimiter not in first:
            continue
        rows = _rows(beginning, delimiter, _LOOKED_AT)
        if rows and not whole and len(rows) <= _LOOKED_AT:
            rows.pop()
        if rows and _agree(rows):
            return kind, _outline(text, delimiter, rows)
    return None


def _rows(text: str, delimiter: str, limit: int) -> list[list[str]]:
    """The first rows of `text`, its header among them, without empty ones; [] if it has none."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        return [row for row in islice(reader, limit + 1) if row]
    except csv.Error:
        return []


def _agree(rows: Sequence[Sequence[str]]) -> bool:
    header = rows[0]
    if len(rows) < _FEWEST_ROWS or len(header) < 2:
        return False
    if len(set(header)) < len(header) or not all(map(_names_a_column, header)):
        return False
    return all(len(row) == len(header) for row in rows[:_AGREEING])


def _names_a_column(name: str) -> bool:
    name = name.strip()
    if not 0 < len(name) <= _NAME_CHARACTERS or len(name.split()) > _NAME_WORDS:
        return False
    return not _NUMBER.fullmatch(name) and not name.endswith((".", "?", "!"))


def _outline(text: str, delimiter: str, rows: Sequence[Sequence[str]]) -> list[str]:
    header, body = rows[0], rows[1:]
    total, odd = _count(text, delimiter, len(header))
    lines = [f"{total} rows below a header, {len(header)} columns"]
    if odd:
        lines.append(f"{odd} rows have another number of columns")
    regular = [row for row in body if len(row) == len(header)]
    for number, name in enumerate(header[:_MOST_COLUMNS]):
        lines.append(f"  {_cell(name)}: {_kind([row[number] for row in regular])}")
    if len(header) > _MOST_COLUMNS:
        lines.append(f"  … and {len(header) - _MOST_COLUMNS} more columns")
    lines.append("first rows:")
    for row in body[:_SAMPLE_ROWS]:
        cells = [_cell(cell) for cell in row[:_MOST_COLUMNS]]
        lines.append("  " + (" | " if delimiter == "\t" else delimiter).join(cells))
    return lines


def _count(text: str, delimiter: str, columns: int) -> tuple[int, int]:
    """The rows below the header, and those among them with another number of columns."""
    total = odd = 0
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
            total += bool(row)
            odd += bool(row) and len(row) != columns
    except csv.Error:
        odd += 1  # a cell too long to be one; what follows it is not counted
    return max(total - 1, 0), odd


def _kind(cells: Sequence[str]) -> str:
    filled = [cell.strip() for cell in cells if cell.strip()]
    empty = "" if len(filled) == len(cells) else ", some empty"
    if not filled:
        return "empty"
    for pattern, word in ((_INTEGER, "integer"), (_NUMBER, "number")):
        if all(pattern.fullmatch(cell) for cell in filled):
            least, most = min(filled, key=float), max(filled, key=float)
            return f"{word} {least if least == most else f'{least} to {most}'}{empty}"
    if all(_DATE.fullmatch(cell) for cell in filled):
        return f"date {min(filled)} to {max(filled)}{empty}"
    different = len(set(filled))
    low, high = min(map(len, filled)), max(map(len, filled))
    return f"text of {low} to {high} characters, {different} different{empty}"


def _cell(cell: str) -> str:
    words = " ".join(cell.split())
    return f"{words[:_CELL_CHARACTERS]}…" if len(words) > _CELL_CHARACTERS else words
