"""Memory as a person at a terminal reads it.

Invariant: what an entry says is printed as text, never as markup, and shortened where it is long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.cli.tables import fields, print_table
from gateway.cli.words import clock, one_line, printable

if TYPE_CHECKING:
    from rich.console import Console

    from perdure.domain.memory import MemoryEntry, MemoryPage, MemoryResults, MemoryStats

#: Characters of an entry in a list.
_SHORT = 200


def print_results(out: Console, found: MemoryResults) -> None:
    """The hits of a search, the best first."""
    for hit in found.results:
        marks = " · ".join((hit.memory_type, hit.trust, hit.label, clock(hit.created_at)))
        out.print(f"{hit.path}  {hit.score:.2f}", style="bold")
        out.print(f"  {printable(one_line(hit.preview, _SHORT))}")
        out.print(f"  {hit.id} · {marks}{_tags(hit.tags)}", style="dim")
    if not found.results:
        out.print("Nothing was found.")
    out.print(f"{len(found.results)} of {found.total:,} entries looked through", style="dim")
    if found.note:
        out.print(found.note, style="yellow")


def print_page(out: Console, page: MemoryPage, offset: int) -> None:
    """A page of entries, and where the next one is."""
    for entry in page.entries:
        pinned = "pinned · " if entry.pinned else ""
        gone = f" · superseded by {entry.superseded_by}" if entry.superseded_by else ""
        out.print(f"{entry.path}{gone}", style="bold")
        out.print(f"  {printable(one_line(entry.content, _SHORT))}")
        out.print(
            f"  {entry.id} · {pinned}{entry.agent} · {entry.memory_type} · {entry.trust} · "
            f"{entry.label} · {clock(entry.created_at)}{_tags(entry.tags)}",
            style="dim",
        )
    seen = offset + len(page.entries)
    if not page.total:
        out.print("Nothing is remembered yet.")
    elif not page.entries:
        out.print(f"{page.total:,} in all, none after skipping {offset}.")
    else:
        out.print(f"{offset + 1}–{seen} of {page.total:,}", style="dim")
    if page.entries and seen < page.total:
        out.print(f"More: perdure memory browse --offset {seen}", style="dim")


def print_entry(out: Console, entry: MemoryEntry) -> None:
    """One entry as a whole."""
    table = fields()
    for name, value in (
        ("path", entry.path),
        ("id", entry.id),
        ("agent", entry.agent),
        ("type", entry.memory_type),
        ("trust", entry.trust),
        ("label", entry.label),
        ("tags", ", ".join(entry.tags) or None),
        ("pinned", "yes" if entry.pinned else None),
        ("stored", f"{clock(entry.created_at)}, by {entry.origin}"),
        ("session", entry.session_key),
        ("messages", ", ".join(entry.message_ids) or None),
        ("superseded by", entry.superseded_by),
    ):
        if value is not None:
            table.add_row(name, printable(value))
    print_table(out, table)
    out.print()
    for line in entry.content.splitlines():
        out.print(printable(line))


def print_stats(out: Console, stats: MemoryStats) -> None:
    """The memory in figures."""
    table = fields()
    table.add_row("entries", f"{stats.entries:,}")
    table.add_row("pinned", f"{stats.pinned:,}")
    table.add_row("superseded", f"{stats.superseded:,}")
    for name, counts in (
        ("agents", stats.by_agent),
        ("labels", stats.by_label),
        ("types", stats.by_type),
        ("trust", stats.by_trust),
    ):
        told = ", ".join(f"{key} {count:,}" for key, count in counts.items() if count)
        table.add_row(name, printable(told) or "–")
    table.add_row("embedder", stats.embedder)
    table.add_row("not embedded", f"{stats.not_embedded:,}")
    print_table(out, table)


def _tags(tags: tuple[str, ...]) -> str:
    return f" · {printable(', '.join(tags))}" if tags else ""
