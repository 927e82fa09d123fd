"""Walking a chain and naming what was done to it.

Invariant: bounded memory, whatever the chain's length; every kind of fault is told with the
first place where it shows and the number of places.

A walk that begins at the first entry finds each of these, whoever can write the table but has
not the key:

- an entry edited in any column, exchanged with another or moved, linked to another predecessor,
  removed from the middle or put in;
- a tail cut off, or the whole table put back to an earlier copy, against the anchor;
- an anchor or a key removed, damaged or exchanged.

Who has the key can write a chain of his own; who can put back earlier copies of the table *and*
of the anchor can put both back together. Keep the anchor where who writes the table cannot.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import computed_field

from perdure.audit.anchor import Anchor, Flaw
from perdure.audit.chain import GENESIS, TRAIL, Head, Record, digest
from perdure.domain.messages import Frozen

#: How far a moved entry is looked for, up and down. Moved farther, it is told as edited.
MOVED_WITHIN = 1_000
#: How many wrong entries are looked for: a search may take 10 ms.
_SEARCHES = 25


class FaultKind(StrEnum):
    """What was done to a chain."""

    EDITED = "edited"
    RELINKED = "relinked"
    SWAPPED = "swapped"
    REMOVED = "removed"
    CUT_TAIL = "cut_tail"
    REPLACED = "replaced"
    WRONG_KEY = "wrong_key"
    KEY_MISSING = "key_missing"
    ANCHOR_MISSING = "anchor_missing"
    ANCHOR_DAMAGED = "anchor_damaged"


class Fault(Frozen):
    """One kind of fault: the first entry where it shows (0: none), how often, and what it is."""

    kind: FaultKind
    seq: int
    count: int
    detail: str


class Report(Frozen):
    """What a walk found. `head` is the last sequence number, 0 for an empty chain.

    `remarks` tell what is no fault and yet worth knowing, such as a crash that the chain survived.
    """

    entries: int
    head: int
    anchored: int | None
    faults: tuple[Fault, ...]
    remarks: tuple[str, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def valid(self) -> bool:
        """Whether nothing was tampered with."""
        return not self.faults


class Verifier:
    """Takes the records of a chain in their order, then reports.

    Args:
        key: None when it is missing; what shows without it is still found.
        anchor: read *before* the first record: it is behind what is read later, never ahead.
        after: the head to begin behind, believed as it stands.
        partial: the records may end before the chain does, as an older export.
    """

    def __init__(
        self,
        key: bytes | None,
        anchor: Anchor | Flaw,
        after: Head = GENESIS,
        *,
        partial: bool = False,
    ) -> None:
        self._key = key
        self._anchor = anchor
        self._last = after
        self._begin = after
        self._partial = partial
        self._proven = 0
        self._entries = 0
        self._searches = 0
        self._sound = True
        self._faults: dict[FaultKind, Fault] = {}

    @property
    def last(self) -> int:
        """The sequence number of the last record taken."""
        return self._last.seq

    def take(self, record: Record) -> None:
        """Look at the next record."""
        last = self._last
        if record.seq <= last.seq:
            self._tell(FaultKind.SWAPPED, record.seq, f"Entry {record.seq} is out of its order.")
            return
        if record.seq != last.seq + 1:
            gone = (
                f"Entry {last.seq + 1} is gone."
                if record.seq == last.seq + 2
                else f"Entries {last.seq + 1} to {record.seq - 1} are gone."
            )
            self._tell(FaultKind.REMOVED, last.seq + 1, gone)
            # What came before cannot be checked; the entry itself still can.
            last = Head(record.seq - 1, str(record.previous))
        if self._key is None:
            self._look_at_link(last, record)
        else:
            self._sound = self._prove(self._key, last, record)
        if isinstance(self._anchor, Anchor) and self._anchor.settled is not None:
            settled = self._anchor.settled
            if record.seq == settled.seq and record.hash != settled.hash:
                told = f"Entry {record.seq} is not the one that the anchor vouches for."
                self._tell(FaultKind.REPLACED, record.seq, told)
        self._entries += 1
        self._last = record.head

    def finish(self, anchor: Anchor | Flaw) -> Report:
        """The report. `anchor` is read again *after* the last record."""
        unproven = bool(self._entries) and not self._proven
        wrong_key = self._key is not None and unproven and self._anchor is Flaw.DAMAGED
        if self._key is None and (self._entries or self._anchor is not Flaw.MISSING):
            self._tell(FaultKind.KEY_MISSING, 0, "There is no key: no entry can be proved.")
        elif wrong_key:
            # Nothing can be told of entries that this key never wrote.
            self._faults = {k: f for k, f in self._faults.items() if k is FaultKind.REMOVED}
            told = "No entry and no anchor was written with this key."
            self._tell(FaultKind.WRONG_KEY, self._begin.seq + 1, told)
        self._compare(self._anchor, wrong_key)
        return Report(
            entries=self._entries,
            head=self._last.seq,
            anchored=_settled(self._anchor),
            faults=tuple(sorted(self._faults.values(), key=lambda fault: fault.seq)),
            remarks=tuple(self._remarks(anchor)),
        )

    def _prove(self, key: bytes, last: Head, record: Record) -> bool:
        """Whether the record is what was written in its place."""
        try:
            body = record.body()
        except (TypeError, ValueError):
            self._tell_edited(record)
            return False
        if _matches(key, record.previous, record.seq, body, record):
            self._look_at_link(last, record)
            if record.hook == TRAIL:
                self._repeat(record)
        elif _matches(key, last.hash, record.seq, body, record):
            self._tell_relinked(record)
        elif written := self._place(key, record, body):
            told = f"Entry {record.seq} stands in the place of another: it was entry {written}."
            self._tell(FaultKind.SWAPPED, record.seq, told)
            self._proven += 1
            return False
        else:
            self._tell_edited(record)
            return False
        self._proven += 1
        return True

    def _place(self, key: bytes, record: Record, body: bytes) -> int:
        """The place for which the record was written, if it was written at all; else 0."""
        if self._searches < _SEARCHES:
            for distance in range(1, MOVED_WITHIN + 1):
                for seq in (record.seq - distance, record.seq + distance):
                    if seq > 0 and _matches(key, record.previous, seq, body, record):
                        return seq
            self._searches += 1
        return 0

    def _look_at_link(self, last: Head, record: Record) -> None:
        # Behind an entry that is wrong itself the fault is that one's, not this link's.
        if self._sound and record.previous != last.hash:
            self._tell_relinked(record)

    def _repeat(self, record: Record) -> None:
        """Tell again what the trail itself found when it wrote this entry."""
        self._tell(FaultKind(record.decision), record.seq, record.reason)

    def _compare(self, anchor: Anchor | Flaw, wrong_key: bool) -> None:
        if self._key is None or wrong_key:
            return
        if anchor is Flaw.DAMAGED:
            told = "The anchor was not written with this key, or was changed since."
            self._tell(FaultKind.ANCHOR_DAMAGED, self._last.seq, told)
        elif anchor is Flaw.MISSING or (isinstance(anchor, Anchor) and anchor.settled is None):
            told = "There is no anchor: entries cut off the end would not show."
            self._tell(FaultKind.ANCHOR_MISSING, self._last.seq, told)
        elif (settled := _settled(anchor)) and settled > self._last.seq and not self._partial:
            told = (
                f"The chain ends at entry {self._last.seq}; the anchor vouches for entry "
                f"{settled}. What is between was removed, or lost when the machine went down."
            )
            self._tell(FaultKind.CUT_TAIL, self._last.seq + 1, told)

    def _remarks(self, now: Anchor | Flaw) -> list[str]:
        if isinstance(now, Flaw) or now.settled is None:
            return []
        pending = now.pending.seq if now.pending else 0
        if self._partial and now.settled.seq > self._last.seq:
            return [f"The chain goes on behind this, to entry {now.settled.seq}."]
        if pending > self._last.seq >= now.settled.seq:
            return [
                f"Entry {pending} was about to be written and is not there: its transaction is "
                "under way, was taken back, or its process died; or it was removed since then."
            ]
        if pending and pending == self._last.seq:
            return [f"The process that wrote entry {pending} has not anchored it yet, or died."]
        if self._last.seq > max(pending, now.settled.seq):
            return [
                f"The anchor is behind: it says {now.settled.seq}, the chain ends at "
                f"{self._last.seq}. An earlier copy of it was put back, or the machine went down."
            ]
        return []

    def _tell_edited(self, record: Record) -> None:
        self._tell(FaultKind.EDITED, record.seq, f"Entry {record.seq} was changed.")

    def _tell_relinked(self, record: Record) -> None:
        told = f"Entry {record.seq} does not follow the entry before it."
        self._tell(FaultKind.RELINKED, record.seq, told)

    def _tell(self, kind: FaultKind, seq: int, detail: str) -> None:
        first = self._faults.get(kind)
        self._faults[kind] = (
            first.model_copy(update={"count": first.count + 1})
            if first
            else Fault(kind=kind, seq=seq, count=1, detail=detail)
        )


def _matches(key: bytes, previous: str, seq: int, body: bytes, record: Record) -> bool:
    try:
        return digest(key, previous, seq, body) == record.hash
    except (TypeError, ValueError, OverflowError):
        # A link or a number that no entry ever had.
        return False


def _settled(anchor: Anchor | Flaw) -> int | None:
    return anchor.settled.seq if isinstance(anchor, Anchor) and anchor.settled else None
