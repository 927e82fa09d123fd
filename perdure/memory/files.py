"""Memory files of a workspace, `MEMORY.md` and `memory/*.md`, as parts that can be found.

Invariant: a part's id says whose file it is of and what it says, so an unchanged part is indexed
once, and a changed file loses its old parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from perdure.domain.labels import Label
from perdure.domain.memory import MemoryEntry, MemoryType, Origin, Trust
from perdure.domain.messages import Frozen
from perdure.memory.embedders import Vector
from perdure.memory.filters import among, quoted
from perdure.memory.instructions import reads_like_instruction
from perdure.memory.rows import row_of, session_digest
from perdure.memory.shelf import Row, Shelf

#: Characters of a part: a few paragraphs, which one vector can stand for.
_PART = 1_200


class MemoryFile(Frozen):
    """A memory file as it is now, at the level of what it holds."""

    path: str
    text: str
    label: Label = Label.PUBLIC


@dataclass(frozen=True)
class Changes:
    """What has to be done so that files are indexed as they are now: rows that are new, and the
    ids of those that are to go, by label."""

    where: str
    fresh: list[tuple[Label, Row]]
    stale: dict[Label, set[str]]

    @property
    def is_none(self) -> bool:
        """Whether everything is as it should be."""
        return not self.fresh and not any(self.stale.values())

    def rows_of(
        self, label: Label, vectors: Sequence[Vector] | None
    ) -> list[tuple[Row, Vector | None]]:
        """The new rows of a label, each with its vector if there are vectors."""
        return [
            (row, vectors[number] if vectors else None)
            for number, (of, row) in enumerate(self.fresh)
            if of is label
        ]

    async def apply(self, shelf: Shelf, rows: list[Row]) -> None:
        """Put the new rows of a table in the place of the old, under the tenant's lock."""
        if rows:
            await shelf.add(rows)
        if self.stale.get(shelf.label):
            await shelf.remove(f"{self.where} AND {among('id', sorted(self.stale[shelf.label]))}")


async def changes(
    shelves: Sequence[Shelf],
    agent: str,
    session_key: str,
    files: Sequence[MemoryFile],
    now: datetime,
) -> Changes:
    """Compare the memory files of a session with what is indexed of them."""
    where = f"shown = {quoted(session_digest(session_key, ''))}"
    known: dict[Label, set[str]] = {label: set() for label in Label}
    for shelf in shelves:
        known[shelf.label] = {row["id"] for row in await shelf.columns(where, ["id"])}
    fresh: list[tuple[Label, Row]] = []
    stale: dict[Label, set[str]] = {}
    for label in Label:
        of_label = [one for one in files if one.label is label]
        wanted = file_rows(agent, session_key, of_label, now)
        fresh += [(label, row) for row in wanted if row["id"] not in known[label]]
        stale[label] = known[label] - {row["id"] for row in wanted}
    return Changes(where, fresh, stale)


def file_rows(
    agent: str, session_key: str, files: Sequence[MemoryFile], now: datetime
) -> list[Row]:
    """The rows of all parts of the files."""
    found: list[Row] = []
    for file in files:
        for number, part in enumerate(parts(file.text)):
            named = "\0".join((session_key, file.path, str(number), part))
            entry = MemoryEntry(
                id=f"mem_{hashlib.sha256(named.encode(errors='replace')).hexdigest()[:24]}",
                tenant="",  # the table's
                agent=agent,
                path=file.path,
                content=part,
                memory_type=MemoryType.SEMANTIC,
                trust=Trust.EXTERNAL if reads_like_instruction(part) else Trust.LEARNED,
                label=file.label,
                created_at=now,
                origin=Origin.FILE,
                session_key=session_key,
            )
            row = row_of(entry, number)
            session = session_digest(f"{session_key}\0{file.path}", entry.id)
            found.append({**row, "session": session, "place": f"{session}:{number}"})
    return found


def parts(text: str) -> Iterator[str]:
    """A text in pieces that end before a heading or a blank line where they can."""
    part: list[str] = []
    size = 0
    for line in text.encode(errors="replace").decode().splitlines():
        fresh = line.startswith("#") or not line.strip()
        if part and (size + len(line) > _PART or (fresh and size > _PART // 2)):
            yield from _whole("\n".join(part))
            part, size = [], 0
        part.append(line)
        size += len(line) + 1
    yield from _whole("\n".join(part))


def _whole(part: str) -> Iterator[str]:
    # A single line may be longer than a part.
    for start in range(0, len(part), 2 * _PART):
        piece = part[start : start + 2 * _PART].strip()
        if piece:
            yield piece
