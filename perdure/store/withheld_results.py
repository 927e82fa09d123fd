"""Results of runs that are above their parent: withheld until a person approves them.

Invariant: the parent reads a constant notice, and the result itself once, if it is approved.
"""

from __future__ import annotations

from sqlalchemy import Connection

from perdure.delegation.results import message
from perdure.domain.exchanges import RELEASED
from perdure.domain.labels import can_flow
from perdure.domain.steps import ToolRequest
from perdure.store import releases
from perdure.store.addressing import Terms
from perdure.store.database import Database
from perdure.store.releases import Withholding
from perdure.store.runs import Run
from perdure.store.session_writer import SessionWriter


class WithheldResults:
    """Withholding the results of runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def withhold(self, run: Run, terms: Terms) -> None:
        """Keep the result of a run from its parent, and ask a person whether it may be taken in,
        once."""
        await self._database.write(_withhold, run, terms)


def withhold_result(parent: SessionWriter, run: Run, terms: Terms) -> None:
    """Keep the result of a run from this session; see `WithheldResults.withhold`."""
    assert run.result is not None, "it has ended"
    if not can_flow(run.label, terms.ceilings_of(parent.row.agent).clearance):
        return  # nobody can let it in
    place = ToolRequest(
        session_key=parent.key,
        agent=parent.row.agent,
        turn=run.parent_turn,
        step=run.parent_step,
        call=run.parent_call,
    )
    withheld = Withholding(
        message_id=f"{RELEASED}{run.run_id}",
        from_session=run.session_key,
        label=run.label,
        text=message(run.result, run.agent),
        what="result",
    )
    releases.withhold(parent, place, withheld, terms.approval_seconds)


def _withhold(connection: Connection, run: Run, terms: Terms) -> None:
    with SessionWriter(connection, run.parent_key) as parent:
        withhold_result(parent, run, terms)
