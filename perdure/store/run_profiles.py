"""What a session's workflow learns of runs when it opens: its own, and whether it has any.

Invariant: reading only.
"""

from __future__ import annotations

from sqlalchemy import Connection, and_, bindparam, or_, select

from perdure.domain.runs import EndReason, RunState
from perdure.domain.steps import RunProfile
from perdure.store.clock import now
from perdure.store.delegation_tables import runs

# Statements are built once: building them anew costs more than running them.
_OWN = select(runs).where(runs.c.session_key == bindparam("key"))
_UNSETTLED = (
    select(runs.c.run_id)
    .where(
        runs.c.parent_key == bindparam("key"),
        or_(
            runs.c.state != RunState.ENDED,
            and_(runs.c.state == RunState.ENDED, runs.c.handed_at.is_(None)),
        ),
    )
    .limit(1)
)


def run_profile(connection: Connection, session_key: str) -> RunProfile | None:
    """The run whose session this is; None for any other session."""
    row = connection.execute(_OWN, {"key": session_key}).one_or_none()
    if row is None:
        return None
    left = row.run_until - now() if row.run_until is not None else None
    return RunProfile(
        run_id=row.run_id,
        parent_key=row.parent_key,
        seconds=max(left.total_seconds(), 0.0) if left is not None else 0.0,
        ended=row.state == RunState.ENDED,
        queued=row.state == RunState.QUEUED,
        stop=EndReason(row.stop) if row.stop and row.state == RunState.STOPPING else None,
    )


def has_runs(connection: Connection, session_key: str) -> bool:
    """Whether a session has runs that have not ended, or results that were not handed over."""
    return connection.scalar(_UNSETTLED, {"key": session_key}) is not None
