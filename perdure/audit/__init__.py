"""The audit chain: what an entry is, how entries are linked, how tampering is found.

Invariant: this room knows no database. `perdure.store.audit` keeps the entries.
"""

from perdure.audit.anchor import Anchor, AnchorFile
from perdure.audit.chain import GENESIS, AuditEntry, Head, Record, link
from perdure.audit.export import verify_export
from perdure.audit.key import AuditFiles, make_key, read_key
from perdure.audit.verification import Fault, FaultKind, Report, Verifier

__all__ = [
    "GENESIS",
    "Anchor",
    "AnchorFile",
    "AuditEntry",
    "AuditFiles",
    "Fault",
    "FaultKind",
    "Head",
    "Record",
    "Report",
    "Verifier",
    "link",
    "make_key",
    "read_key",
    "verify_export",
]
