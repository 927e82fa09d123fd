"""Memory files of a workspace, `MEMORY.md` and `memory/*.md`, as parts that can be found.

Invariant: a part's id says whose file it is of and what it says, so an unchanged part is indexed
once, and a changed file loses its old parts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from datetime import datetime

from perdure.domain.labels import Label
from perdure.domain.memory import MemoryEntry, MemoryType, Origin, Trust
from perdure.domain.messages import Frozen
from perdure.memory.instructions import reads_like_instruction
from perdure.memory.rows import row_of, session_digest
from perdure.memory.shelf import Row

#: Characters of a part: a few paragraphs, which one vector can stand for.
_PART = 1_200


class MemoryFile(Frozen):
    """A memory file as it is now, at the level of what it holds."""

    path: str
    text: str
    label: Label = Label.PUBLIC


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
