"""Tables for people.

Invariant: a cell is never cut, so what is shown can be copied; a narrow terminal wraps the line.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table


def columns(*names: str, right: Iterable[str] = ()) -> Table:
    """An empty table of columns with these names, those of `right` aligned to the right."""
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, no_wrap=True, justify="right" if name in right else "left")
    return table


def fields() -> Table:
    """An empty table of names and values."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for style in ("dim", None):
        table.add_column(style=style, no_wrap=True)
    return table


def print_table(out: Console, table: Table) -> None:
    """Print a table as wide as its cells are."""
    unbounded = out.options.update(max_width=100_000)
    width = Measurement.get(out, unbounded, table).maximum
    # A console lets nothing be wider than itself.
    Console(file=out.file, width=max(out.width, width), markup=False, highlight=False).print(table)
