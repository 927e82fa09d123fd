"""Decisions of policy, as metrics tell of them.

Invariant: the name of the rule or invariant that decided, never its reason.
"""

from __future__ import annotations

from perdure.audit import AuditEntry
from perdure.telemetry import metrics

_FLOW = "invariant:label-flow"
#: Of what the settings and the engine know by name; else it is a person's, of whom there are many.
_KINDS = ("rule:", "invariant:")
_REFUSES = "BLOCK"


def count(entry: AuditEntry) -> None:
    """A decision is being recorded."""
    known = entry.decided_by == "default" or entry.decided_by.startswith(_KINDS)
    by = entry.decided_by if known else "person"
    metrics.DECISIONS.labels(entry.hook, entry.decision, by).inc()
    if entry.decided_by == _FLOW and entry.decision == _REFUSES:
        metrics.LABEL_REFUSALS.labels(entry.hook).inc()
