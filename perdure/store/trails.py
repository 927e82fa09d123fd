"""What a transaction may ask of the audit trail.

Invariant: a store that was opened without the trail's files can record nothing; it says so rather
than let an act pass unrecorded.
"""

from __future__ import annotations

from typing import Protocol

from sqlalchemy import Connection

from perdure.audit import AuditEntry
from perdure.domain.errors import Unavailable


class Trail(Protocol):
    """The appending side of an audit trail."""

    def append(self, connection: Connection, entry: AuditEntry) -> int:
        """Record a decision in the transaction of `connection`; its sequence number."""
        ...


class NoTrail:
    """The trail of a store that is only looked at."""

    def append(self, connection: Connection, entry: AuditEntry) -> int:
        """Refuse.

        Raises:
            Unavailable: always; the transaction does not commit.
        """
        raise Unavailable(
            f"A decision at {entry.hook} cannot be recorded: the store was opened without its "
            "audit files.",
            "Open it with `Store.open(url, AuditFiles.of(home))`.",
        )
