"""Runs as the store knows them: found, counted, given their place.

Invariant: a run's row tells its whole life, and its state only goes forward.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, select, update

from perdure.delegation.packet import SpawnPacket
from perdure.delegation.results import RunResult
from perdure.domain.errors import NotFound
from perdure.domain.keys import SessionKey
from perdure.domain.labels import Label
from perdure.domain.limits import Limits
from perdure.domain.messages import Frozen
from perdure.domain.runs import EndReason, RunState
from perdure.domain.states import EventKind
from perdure.domain.steps import ChildStart, ToolRequest
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.delegation_tables import runs
from perdure.store.session_writer import SessionWriter

#: States in which a run takes one of its parent's places.
UNDER_WAY = (RunState.RUNNING, RunState.STOPPING)

# Statements are built once: building them anew costs more than running them.
_GET = select(runs).where(runs.c.run_id == bindparam("id"))
_OF_SESSION = select(runs).where(runs.c.session_key == bindparam("key"))
_OF_CALL = (
    select(runs)
    .where(
        runs.c.parent_key == bindparam("key"),
        runs.c.parent_turn == bindparam("of_turn"),
        runs.c.parent_step == bindparam("of_step"),
        runs.c.parent_call == bindparam("of_call"),
    )
    .order_by(runs.c.run_id.desc())
    .limit(1)
)
_COUNT = select(func.count()).where(
    runs.c.parent_key == bindparam("key"), runs.c.state.in_(bindparam("states", expanding=True))
)


class Run(Frozen):
    """A run as the store knows it."""

    run_id: str
    session_key: str
    parent_key: str
    path: str
    depth: int
    parent_turn: int
    parent_step: int
    parent_call: int
    epoch: int
    sync: bool
    agent: str
    packet: SpawnPacket
    label: Label
    state: RunState
    stop: EndReason | None
    end_reason: EndReason | None
    token_budget: int | None
    cost_budget: float | None
    reserved_tokens: int
    reserved_cost: float
    repairs: int
    result: RunResult | None
    follows: str | None
    cause: str
    steered_at: datetime | None
    queued_at: datetime
    queue_until: datetime
    started_at: datetime | None
    run_until: datetime | None
    ended_at: datetime | None
    handed_at: datetime | None

    @property
    def start(self) -> ChildStart:
        """What its parent's workflow must know to start it."""
        return ChildStart(
            run_id=self.run_id,
            session_key=self.session_key,
            agent=self.agent,
            depth=self.depth,
        )


class Address(Frozen):
    """A session to be woken."""

    session_key: str
    agent: str


class Runs:
    """The runs table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_call(self, request: ToolRequest) -> Run | None:
        """The newest run of a call: the one it spawned, or what that was steered into."""
        return await self._database.read(of_call, request)

    async def of_session(self, session_key: str) -> Run | None:
        """The run whose session this is."""
        return await self._database.read(of_session, session_key)

    async def get(self, run_id: str) -> Run:
        """One run.

        Raises:
            NotFound: when there is none of that id.
        """
        return await self._database.read(get, run_id)

    async def newest(self, run_id: str) -> Run:
        """A run, or the last of those that took its place when it was steered.

        Raises:
            NotFound: when there is none of that id.
        """
        return await self._database.read(_newest, run_id)


def _newest(connection: Connection, run_id: str) -> Run:
    run = get(connection, run_id)
    successor = select(runs.c.run_id).where(runs.c.follows == bindparam("id"))
    while (following := connection.scalar(successor, {"id": run.run_id})) is not None:
        run = get(connection, following)
    return run


def get(connection: Connection, run_id: str) -> Run:
    """One run; see `Runs.get`."""
    row = connection.execute(_GET, {"id": run_id}).one_or_none()
    if row is None:
        raise NotFound(f"There is no run {run_id[:160]!r}.", "`perdure tree` lists what there is.")
    return run_of(row)


def of_session(connection: Connection, session_key: str) -> Run | None:
    """The run whose session this is."""
    row = connection.execute(_OF_SESSION, {"key": session_key}).one_or_none()
    return None if row is None else run_of(row)


def of_call(connection: Connection, request: ToolRequest) -> Run | None:
    """The newest run of a call; see `Runs.of_call`."""
    call = {
        "key": request.session_key,
        "of_turn": request.turn,
        "of_step": request.step,
        "of_call": request.call,
    }
    row = connection.execute(_OF_CALL, call).one_or_none()
    return None if row is None else run_of(row)


def run_of(row: Row[Any]) -> Run:
    """A row of the table as a run."""
    return Run.model_validate(dict(row._mapping))


def count(connection: Connection, parent_key: str, states: Sequence[RunState]) -> int:
    """How many runs of a session are in one of `states`."""
    return int(connection.scalar(_COUNT, {"key": parent_key, "states": list(states)}) or 0)


def start(session: SessionWriter, run_id: str, limits: Limits) -> Run:
    """Give a run of this session its place: its clock begins."""
    moment = now()
    session.connection.execute(
        update(runs)
        .where(runs.c.run_id == run_id)
        .values(
            state=RunState.RUNNING,
            started_at=moment,
            run_until=moment + timedelta(seconds=limits.run_seconds),
        )
    )
    run = get(session.connection, run_id)
    session.tell(EventKind.RUN_STARTED, run_id=run_id, session_key=run.session_key, agent=run.agent)
    return run


def session_key_of(parent_key: str, agent: str, run_id: str) -> str:
    """The session of a run: its parent's tenant and user, its agent, its id."""
    parent = SessionKey.parse(parent_key)
    return str(
        SessionKey.model_validate(
            {
                "tenant": parent.tenant,
                "user": parent.user,
                "markers": (("agent", agent), ("run", run_id)),
            }
        )
    )
