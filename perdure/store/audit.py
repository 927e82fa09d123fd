"""The audit trail: entries appended inside the transactions whose effects they allow.

Invariant: an entry continues the chain as the table has it, under the database's write lock, so
there is one serial writer however many processes append; and it is committed together with the
change that it allows, or not at all.

The anchor follows in two writes of 512 bytes: before the commit, `pending`, what the table is
about to end with; after it, `settled`. Whoever appends compares the table's end with the anchor
first, and when they do not agree, the trail says so in an entry of its own (hook `AUDIT_TRAIL`):
a cut is found also when the chain has grown again since.

What shows. In quiet times the table must end exactly where `settled` says: any cut shows. What
remains: when a process died after its commit and before `settled`, less than a millisecond, the
entries of that one transaction can be cut off without a fault until the next entry, or the next
start of a process, settles them; `verify` remarks it. A machine that loses power may lose the
last commits (SQLite in WAL mode keeps them in memory until a checkpoint): the entries are gone,
their effects may not be, and `verify` reports a cut tail. An anchor that is behind for the same
reason is a remark.
"""

from __future__ import annotations

import functools
import logging
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, RootTransaction, insert, select

from perdure.audit import (
    GENESIS,
    Anchor,
    AnchorFile,
    AuditEntry,
    AuditFiles,
    FaultKind,
    Head,
    Record,
    Report,
    Verifier,
    link,
    make_key,
    read_key,
)
from perdure.audit.anchor import Flaw, unproven_head
from perdure.audit.chain import TRAIL, timestamp
from perdure.domain.errors import NotFound, Unavailable
from perdure.domain.labels import Label
from perdure.store.clock import now
from perdure.store.database import Database, after_commit
from perdure.store.plain_text import storable
from perdure.store.tables import audit
from perdure.telemetry import decisions

#: Entries read at a time when all are walked.
PAGE = 500

_logger = logging.getLogger(__name__)
_COLUMNS = tuple(audit.c[name] for name in Record.__slots__)


@dataclass
class _Open:
    """What the transaction under way has appended. `settled` is what the anchor goes on saying."""

    transaction: RootTransaction | None
    settled: Head | None
    head: Head


class AuditTrail:
    """The appending side, one per process and database. Open it with `AuditTrail.open`."""

    def __init__(self, key: bytes, anchor: AnchorFile) -> None:
        self._key = key
        self._anchor = anchor
        self._open: _Open | None = None

    @classmethod
    async def open(cls, database: Database, files: AuditFiles) -> AuditTrail:
        """The trail of a database; the first to open it makes the key and the anchor.

        Processes that share the database must share both files.

        Raises:
            Unavailable: when a file cannot be read or written, or when there are entries and no
                key to continue them with.
        """
        return await database.write(_open, files)

    def append(self, connection: Connection, entry: AuditEntry) -> int:
        """Record a decision in the transaction of `connection`; its sequence number.

        Raises:
            Unavailable: when the anchor cannot be written; the transaction must not commit.
        """
        trail = self._begun(connection)
        record = link(self._key, trail.head, _storable(entry), now())
        decisions.count(entry)
        connection.execute(_INSERT, record.columns())
        trail.head = record.head
        self._anchor.write(Anchor(trail.settled, trail.head))
        return record.seq

    def _begun(self, connection: Connection) -> _Open:
        """The transaction under way; at its first entry, the past is compared with the anchor."""
        transaction = connection.get_transaction()
        if self._open is not None and self._open.transaction is transaction:
            return self._open
        head = _head(connection)
        anchor = self._anchor.read()
        broken = _disagreement(connection, head, anchor)
        settled: Head | None = head
        if broken is not None:
            # Kept until the entry about it is committed: a crash in between loses no evidence.
            settled = anchor.settled if isinstance(anchor, Anchor) else None
        self._open = trail = _Open(transaction, settled, head)
        after_commit(connection, functools.partial(self._settle, trail))
        if broken is not None:
            self.append(connection, broken)
        return trail

    def _settle(self, trail: _Open) -> None:
        try:
            self._anchor.settle(trail.head)
        except Unavailable as error:
            # Committed is committed. It stays pending, and the next entry settles it or fails.
            _logger.warning("%s", error)


class AuditLog:
    """The reading side. It needs no key and believes what it reads; `verify` does not."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def entry(self, seq: int) -> Record:
        """One entry.

        Raises:
            NotFound: when there is none with that number.
        """
        found = await self._database.read(page, after=seq - 1, limit=1)
        if not found or found[0].seq != seq:
            raise NotFound(f"There is no audit entry {seq}.")
        return found[0]

    async def page(
        self,
        after: int = 0,
        limit: int = PAGE,
        session_key: str | None = None,
        since: datetime | None = None,
    ) -> Sequence[Record]:
        """Up to `limit` entries behind the number `after`, of a session, since a moment."""
        return await self._database.read(page, after, limit, session_key, since)

    async def newest(self, limit: int, session_key: str | None = None) -> Sequence[Record]:
        """The last `limit` entries, of a session, oldest first."""
        return await self._database.read(_newest, limit, session_key)


async def verify(database: Database, files: AuditFiles, after: int = 0) -> Report:
    """Walk the chain and report; processes may go on appending meanwhile.

    Args:
        database: its table is read by pages, each on a thread.
        files: neither is created or changed.
        after: begin behind this entry, believing it: for a chain with a known break before.

    Raises:
        NotFound: when there is no entry `after`.
        Unavailable: when a file is there and cannot be read.
    """
    begin = (await AuditLog(database).entry(after)).head if after else GENESIS
    while True:
        key = read_key(files.key)
        anchor = AnchorFile(files.anchor, key or b"")
        # An opening that was interrupted leaves an anchor of nothing, and no key.
        unused = key is None and not unproven_head(files.anchor)
        verifier = Verifier(key, Flaw.MISSING if unused else anchor.read(), begin)
        while await database.read(_walk, verifier):
            pass
        if key is not None or read_key(files.key) is None:
            return verifier.finish(anchor.read())
        # The first process to append has made the key meanwhile.


def page(
    connection: Connection,
    after: int = 0,
    limit: int = PAGE,
    session_key: str | None = None,
    since: datetime | None = None,
) -> Sequence[Record]:
    """Up to `limit` entries behind the number `after`, oldest first."""
    query = select(*_COLUMNS).where(audit.c.seq > after).order_by(audit.c.seq).limit(limit)
    if session_key is not None:
        query = query.where(audit.c.session_key == session_key)
    if since is not None:
        query = query.where(audit.c.at >= timestamp(since))
    return [Record(*row) for row in connection.execute(query)]


def _newest(connection: Connection, limit: int, session_key: str | None) -> Sequence[Record]:
    query = select(*_COLUMNS).order_by(audit.c.seq.desc()).limit(limit)
    if session_key is not None:
        query = query.where(audit.c.session_key == session_key)
    return [Record(*row) for row in connection.execute(query)][::-1]


def _walk(connection: Connection, verifier: Verifier) -> int:
    records = page(connection, verifier.last)
    for record in records:
        verifier.take(record)
    return len(records)


_INSERT = insert(audit)
_HEAD = select(audit.c.seq, audit.c.hash).order_by(audit.c.seq.desc()).limit(1)


def _head(connection: Connection) -> Head:
    row = connection.execute(_HEAD).one_or_none()
    return GENESIS if row is None else Head(row.seq, row.hash)


def _open(connection: Connection, files: AuditFiles) -> AuditTrail:
    head = _head(connection)
    key = read_key(files.key)
    if key is None:
        entries = max(head.seq, unproven_head(files.anchor))
        if entries:
            raise Unavailable(
                f"The audit key {files.key} is gone, and {entries} entries were written with it.",
                "Restore it from a backup. If it is lost, nothing proves them any more: keep a "
                f"`perdure audit export`, empty the table `audit` and remove {files.anchor}.",
            )
        # The key comes last: an anchor without a key is an opening that was interrupted.
        key = secrets.token_bytes(32)
        AnchorFile(files.anchor, key).write(Anchor(GENESIS))
        key = make_key(files.key, key)
    anchor = AnchorFile(files.anchor, key)
    anchor.settle(head)
    return AuditTrail(key, anchor)


def _disagreement(connection: Connection, head: Head, anchor: Anchor | Flaw) -> AuditEntry | None:
    """What the trail has to say about its past, when table and anchor do not agree."""
    if isinstance(anchor, Anchor):
        if head in anchor:
            return None
        settled = anchor.settled
        if settled is None:
            kind, told = FaultKind.ANCHOR_MISSING, "The anchor was gone."
        elif settled.seq > head.seq:
            kind = FaultKind.CUT_TAIL
            told = f"The chain ended at entry {head.seq}; the anchor vouched for {settled.seq}."
        elif settled == GENESIS or _hash(connection, settled.seq) == settled.hash:
            # An anchor that is behind; `verify` remarks it until now.
            return None
        else:
            kind = FaultKind.REPLACED
            told = f"Entry {settled.seq} was not the one that the anchor vouched for."
    elif anchor is Flaw.MISSING:
        kind, told = FaultKind.ANCHOR_MISSING, "The anchor was gone."
    else:
        kind, told = FaultKind.ANCHOR_DAMAGED, "The anchor was not written with this key."
    return AuditEntry(
        hook=TRAIL,
        session_key="",
        decision=kind,
        decided_by="audit",
        label_before=Label.PUBLIC,
        label_after=Label.PUBLIC,
        reason=f"{told} Found when the chain was continued behind entry {head.seq}.",
    )


def _storable(entry: AuditEntry) -> AuditEntry:
    """The entry as its text is stored: what is hashed is what is read again."""
    texts = {"reason": storable(entry.reason), "decided_by": storable(entry.decided_by)}
    return entry.model_copy(update=texts)


def _hash(connection: Connection, seq: int) -> str | None:
    return connection.scalar(select(audit.c.hash).where(audit.c.seq == seq))
