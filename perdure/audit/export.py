"""Verifying what was exported, one entry a line, where the table is out of reach.

Invariant: an export is judged as the table would be, save for its end: it may be older than the
anchor, and then what is missing at its end is a remark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from perdure.audit.anchor import AnchorFile
from perdure.audit.chain import GENESIS, Head, Record
from perdure.audit.key import AuditFiles, read_key
from perdure.audit.verification import Report, Verifier
from perdure.domain.errors import InvalidArgument


def verify_export(lines: Iterable[bytes], files: AuditFiles, after: int = 0) -> Report:
    """Walk exported entries and report.

    Args:
        lines: the export, in its order.
        files: the trail's key and anchor.
        after: the export begins behind this entry; the link to it is believed.

    Raises:
        InvalidArgument: for a line that is no entry.
        Unavailable: when a file is there and cannot be read.
    """
    key = read_key(files.key)
    anchor = AnchorFile(files.anchor, key or b"")
    before = anchor.read()
    verifier: Verifier | None = None
    for number, line in enumerate(lines, start=1):
        record = _record(line, number)
        if record.seq <= after and verifier is None:
            continue
        if verifier is None:
            begin = Head(after, record.previous) if after else GENESIS
            verifier = Verifier(key, before, begin, partial=True)
        verifier.take(record)
    verifier = verifier or Verifier(key, before, partial=True)
    return verifier.finish(anchor.read())


def _record(line: bytes, number: int) -> Record:
    try:
        record = Record.from_export(json.loads(line))
        if isinstance(record.seq, int):
            return record
    except (ValueError, KeyError, TypeError):
        pass
    raise InvalidArgument(
        f"Line {number} is no audit entry.", "`perdure audit export` writes one JSON object a line."
    )
