"""Trees for people: rows with guides, in columns.

Invariant: one line each, its name whole and at the left; where there is no room, what is least
needed is cut, at the right.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple, TypeVar

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from gateway.cli.turn_view import DIM

Item = TypeVar("Item")

PLAIN = Style()
BOLD = Style(bold=True)


class Row(NamedTuple):
    """One line: `guide` leads from the row above to `name`; `style` is that of the first cell."""

    guide: str
    name: str
    cells: tuple[str, ...]
    style: Style = PLAIN
    name_style: Style = PLAIN


def branches(items: Sequence[Item], guide: str) -> Iterator[tuple[Item, str, str]]:
    """Each item with the guide of its row, and the guide that the rows below it go on from."""
    for number, item in enumerate(items, start=1):
        last = number == len(items)
        yield item, guide + ("└─ " if last else "├─ "), guide + ("   " if last else "│  ")


def drawn(
    name: str, titles: tuple[str, ...], right: Collection[str], rows: list[Row]
) -> list[Text]:
    """The rows under a line of titles, those of `right` aligned to the right."""
    rows = [Row("", name, titles), *rows]
    left = max(cell_len(row.guide + row.name) for row in rows)
    widths = [max(cell_len(row.cells[index]) for row in rows) for index in range(len(titles) - 1)]
    lines = []
    for number, row in enumerate(rows):
        line = Text(style=DIM if number == 0 else PLAIN)
        line.append(row.guide, DIM)
        line.append(row.name, row.name_style)
        line.append(" " * (left - cell_len(row.guide + row.name)))
        for index, (title, width) in enumerate(zip(titles, [*widths, 0], strict=True)):
            cell = row.cells[index]
            space = " " * (width - cell_len(cell))
            line.append("  " + (space + cell if title in right else cell + space))
            if index == 0:
                line.stylize(row.style, len(line) - width)
        line.rstrip()
        lines.append(one_row(line))
    return lines


def one_row(line: Text) -> Text:
    """The line, to be cut where it would not fit into one row."""
    line.no_wrap, line.overflow = True, "ellipsis"
    return line
