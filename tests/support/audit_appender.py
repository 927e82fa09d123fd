"""`python -m tests.support.audit_appender HOME NAME COUNT`: a process that appends entries.

It prints `ready` when its trail is open, and the number of each entry once it is committed.
COUNT 0 goes on until the process is killed.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path

from sqlalchemy import Connection

from perdure.audit import AuditEntry, AuditFiles
from perdure.domain.labels import Label
from perdure.store import Database
from perdure.store.audit import AuditTrail


def decision(name: str, number: int) -> AuditEntry:
    """An entry with something in every field."""
    return AuditEntry(
        hook="PRE_TOOL_CALL",
        session_key=f"default:{name}",
        turn=number,
        step=1,
        decision="ALLOW",
        decided_by="default",
        rules_evaluated=({"id": "r1", "outcome": "no match"},),
        label_before=Label.PUBLIC,
        label_after=Label.INTERNAL,
        reason="Nothing forbids it.",
        arguments={"path": f"{number}.txt", "ratio": 0.5, "text": "Grüße"},
    )


async def main(home: Path, name: str, count: int) -> None:
    """Append `count` entries, one or two a transaction."""
    database = await Database.open(f"sqlite:///{home / 'perdure.db'}")
    trail = await AuditTrail.open(database, AuditFiles.of(home))
    print("ready", flush=True)

    def transaction(connection: Connection, number: int) -> int:
        for _ in range(1 + number % 2):
            seq = trail.append(connection, decision(name, number))
        return seq

    for number in range(count) if count else itertools.count():
        print(await database.write(transaction, number), flush=True)
    await database.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
