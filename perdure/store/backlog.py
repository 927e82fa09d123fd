"""How much waits in the store, and for how long: for those who watch over it.

Invariant: cheap at any size. Only what waits is looked at, and no text of it: the mailbox holds
nothing else, and the rest is found by an index on its state.
"""

from __future__ import annotations

from pydantic import Field
from sqlalchemy import Connection, func, select

from perdure.domain.approvals import ApprovalState
from perdure.domain.messages import Frozen
from perdure.domain.runs import RunState
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.delegation_tables import runs
from perdure.store.dialect import oldest
from perdure.store.tables import approvals, mailbox

#: Found in the primary key alone.
_PER_SESSION = select(func.count()).select_from(mailbox).group_by(mailbox.c.session_key)
_PENDING = select(func.count(), func.min(approvals.c.asked_at)).where(
    approvals.c.state == ApprovalState.PENDING
)
_RUNS = (
    select(runs.c.state, func.count())
    .where(runs.c.state.in_([state for state in RunState if state is not RunState.ENDED]))
    .group_by(runs.c.state)
)


class Backlog(Frozen):
    """What waits now. Ages are seconds, 0 where nothing waits."""

    messages: int = 0
    oldest_message: float = 0.0
    fullest_inbox: int = 0
    approvals: int = 0
    oldest_approval: float = 0.0
    runs: dict[RunState, int] = Field(default_factory=dict)


class Backlogs:
    """Reads it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def now(self) -> Backlog:
        """What waits at this moment."""
        return await self._database.read(_now)


def _now(connection: Connection) -> Backlog:
    moment = now()

    def age(since: object) -> float:
        return max(0.0, (moment - since).total_seconds()) if since else 0.0  # type: ignore[operator]

    inboxes = connection.scalars(_PER_SESSION).all()
    pending, asked = connection.execute(_PENDING).one()
    return Backlog(
        messages=sum(inboxes),
        oldest_message=age(oldest(connection, mailbox.c.at)),
        fullest_inbox=max(inboxes, default=0),
        approvals=pending,
        oldest_approval=age(asked),
        runs={RunState(state): count for state, count in connection.execute(_RUNS)},
    )
