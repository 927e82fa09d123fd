"""The store as one object: a database and the repositories over it."""

from __future__ import annotations

from sqlalchemy import Connection

from perdure.audit import AuditEntry, AuditFiles
from perdure.store.approvals import Approvals
from perdure.store.audit import AuditTrail
from perdure.store.backlog import Backlogs
from perdure.store.budgets import Budgets
from perdure.store.claims import Claims
from perdure.store.context_search import ContextSearch
from perdure.store.context_views import ContextViews
from perdure.store.database import Database
from perdure.store.deliveries import Deliveries
from perdure.store.deltas import Deltas
from perdure.store.dialect import READERS
from perdure.store.exchanges import Exchanges
from perdure.store.keys import Keys
from perdure.store.mailbox import Mailbox
from perdure.store.nodes import Nodes
from perdure.store.outbox import Outbox
from perdure.store.outlines import Outlines
from perdure.store.reconciling import Reconciling
from perdure.store.remembering import Remembering
from perdure.store.repeats import Repeats
from perdure.store.replies import Replies
from perdure.store.run_outcomes import RunOutcomes
from perdure.store.run_trees import RunTrees
from perdure.store.run_views import RunViews
from perdure.store.run_waits import RunWaits
from perdure.store.runs import Runs
from perdure.store.schedules import Schedules
from perdure.store.search import Search
from perdure.store.search_summaries import SearchSummaries
from perdure.store.seeding import Seeding
from perdure.store.session_callers import SessionCallers
from perdure.store.session_views import SessionViews
from perdure.store.sessions import Sessions
from perdure.store.spawning import Spawning
from perdure.store.stopping import Stopping
from perdure.store.summaries import Summaries
from perdure.store.supervision import SupervisionStore
from perdure.store.sweeps import Sweeps
from perdure.store.tails import Tails
from perdure.store.tool_lists import ToolLists
from perdure.store.trails import NoTrail, Trail
from perdure.store.transcript import Transcript
from perdure.store.turn_traces import TurnTraces
from perdure.store.turns import Turns
from perdure.store.withheld_results import WithheldResults


class Store:
    """Everything a session must not lose. Open it with `Store.open`, close it when done."""

    def __init__(self, database: Database, trail: Trail) -> None:
        self.database = database
        self._trail = trail
        self.sessions = Sessions(database)
        self.session_callers = SessionCallers(database)
        self.keys = Keys(database, trail)
        self.mailbox = Mailbox(database)
        self.schedules = Schedules(database)
        self.replies = Replies(database)
        self.seeding = Seeding(database)
        self.repeats = Repeats(database)
        self.turns = Turns(database, trail)
        self.claims = Claims(database, trail)
        self.approvals = Approvals(database, trail)
        self.deliveries = Deliveries(database)
        self.transcript = Transcript(database)
        self.tails = Tails(database)
        self.summaries = Summaries(database)
        self.sweeps = Sweeps(database)
        self.nodes = Nodes(database)
        self.context_search = ContextSearch(database)
        self.outlines = Outlines(database)
        self.context_views = ContextViews(database)
        self.views = SessionViews(database)
        self.search = Search(database)
        self.search_summaries = SearchSummaries(database)
        self.outbox = Outbox(database)
        self.deltas = Deltas(database)
        self.runs = Runs(database)
        self.spawning = Spawning(database)
        self.run_outcomes = RunOutcomes(database)
        self.budgets = Budgets(database)
        self.run_views = RunViews(database)
        self.run_trees = RunTrees(database)
        self.run_waits = RunWaits(database)
        self.reconciling = Reconciling(database)
        self.stopping = Stopping(database)
        self.supervision = SupervisionStore(database)
        self.exchanges = Exchanges(database)
        self.withheld_results = WithheldResults(database)
        self.remembering = Remembering(database)
        self.backlogs = Backlogs(database)
        self.turn_traces = TurnTraces(database)
        self.tool_lists = ToolLists(database)

    @classmethod
    async def open(
        cls, url: str, audit: AuditFiles | None = None, *, readers: int = READERS
    ) -> Store:
        """The store at a database URL, its schema up to date. Without the audit files it is for
        looking only: what policy decides cannot be recorded. `readers` are as for a `Database`."""
        database = await Database.open(url, readers=readers)
        trail = NoTrail() if audit is None else await AuditTrail.open(database, audit)
        return cls(database, trail)

    async def record(self, *entries: AuditEntry) -> None:
        """Record decisions in a transaction of their own, before the acts they allow."""
        await self.database.write(_record, self._trail, entries)

    async def close(self) -> None:
        """Stop tailing and release every connection."""
        await self.outbox.close()
        await self.database.close()


def _record(connection: Connection, trail: Trail, entries: tuple[AuditEntry, ...]) -> None:
    for entry in entries:
        trail.append(connection, entry)
