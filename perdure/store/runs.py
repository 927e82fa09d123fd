"""Runs: spawned, queued, started, told to stop, ended, each once.

Invariant: a run's state only goes forward, and whoever stops a run stops all below it in the
same transaction; nothing is spawned below a run that stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, insert, select, update

from perdure.delegation.packet import SpawnPacket
from perdure.delegation.results import RunResult
from perdure.domain.envelopes import Envelope, Sender, SenderKind
from perdure.domain.errors import Denied, LimitExceeded, NotFound
from perdure.domain.keys import SessionKey
from perdure.domain.labels import Label
from perdure.domain.limits import Limits
from perdure.domain.messages import Frozen
from perdure.domain.runs import EndReason, RunState
from perdure.domain.states import EventKind
from perdure.domain.steps import ChildStart, ToolRequest
from perdure.store import budgets, mailbox, waits
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.delegation_tables import runs
from perdure.store.file_labels import raise_label
from perdure.store.session_writer import SessionWriter
from perdure.store.sessions import make_session

#: States in which a run takes one of its parent's places.
UNDER_WAY = (RunState.RUNNING, RunState.STOPPING)

_OF_SESSION = select(runs).where(runs.c.session_key == bindparam("key"))


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


class Spawn(Frozen):
    """A run to be made for `cause`, a call or a person. `label` is the level of its task; the
    budgets are what the settings allow it, which may be more than its parent has left."""

    run_id: str
    session_key: str
    sync: bool
    packet: SpawnPacket
    label: Label
    cause: str
    token_budget: int | None = None
    cost_budget: float | None = None


class Spawned(Frozen):
    """A run that was made, and its place in the queue, from 1, if it waits for one."""

    run: Run
    position: int | None = None


class Address(Frozen):
    """A session to be woken."""

    session_key: str
    agent: str


class Runs:
    """The runs table."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def spawn(self, request: ToolRequest, spawn: Spawn, limits: Limits) -> Spawned:
        """Make a run for a call, once, and lay its task into its mailbox.

        Raises:
            LimitExceeded: for the depth, when the queue is full or there is none, or when nothing
                is left of the budget of a run that spawns.
            Denied: when the session is a run itself that is to stop.
        """
        return await self._database.write(_spawn, request, spawn, limits)

    async def check_room(self, request: ToolRequest, depth: int, limits: Limits) -> None:
        """Refuse what `spawn` would refuse, before anything is made for it.

        Raises:
            LimitExceeded, Denied: as `spawn` does.
        """
        await self._database.read(_check_room, request, depth, limits)

    async def of_call(self, request: ToolRequest) -> Run | None:
        """The newest run of a call: the one it spawned, or what that was steered into."""
        return await self._database.read(of_call, request)

    async def spawned_by(self, request: ToolRequest) -> Spawned | None:
        """The same, with its place in the queue."""
        return await self._database.read(_spawned_by, request)

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
    row = connection.execute(select(runs).where(runs.c.run_id == run_id)).one_or_none()
    if row is None:
        raise NotFound(f"There is no run {run_id[:160]!r}.", "`perdure tree` lists what there is.")
    return run_of(row)


def of_session(connection: Connection, session_key: str) -> Run | None:
    """The run whose session this is."""
    row = connection.execute(_OF_SESSION, {"key": session_key}).one_or_none()
    return None if row is None else run_of(row)


def of_call(connection: Connection, request: ToolRequest) -> Run | None:
    """The newest run of a call; see `Runs.of_call`."""
    row = connection.execute(
        select(runs)
        .where(
            runs.c.parent_key == request.session_key,
            runs.c.parent_turn == request.turn,
            runs.c.parent_step == request.step,
            runs.c.parent_call == request.call,
        )
        .order_by(runs.c.run_id.desc())
        .limit(1)
    ).one_or_none()
    return None if row is None else run_of(row)


def _spawned_by(connection: Connection, request: ToolRequest) -> Spawned | None:
    run = of_call(connection, request)
    return None if run is None else Spawned(run=run, position=position(connection, run))


def run_of(row: Row[Any]) -> Run:
    """A row of the table as a run."""
    return Run.model_validate(dict(row._mapping))


def count(connection: Connection, parent_key: str, states: Sequence[RunState]) -> int:
    """How many runs of a session are in one of `states`."""
    query = select(func.count()).where(runs.c.parent_key == parent_key, runs.c.state.in_(states))
    return int(connection.scalar(query) or 0)


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


def insert_run(session: SessionWriter, spawn: Spawn, place: dict[str, Any], limits: Limits) -> Run:
    """Add a run to the queue of this session: its row, its own session, its task."""
    packet = spawn.packet
    moment = now()
    session.connection.execute(
        insert(runs).values(
            run_id=spawn.run_id,
            session_key=spawn.session_key,
            parent_key=session.key,
            depth=packet.depth,
            agent=packet.agent,
            packet=packet.model_dump(mode="json"),
            label=spawn.label,
            state=RunState.QUEUED,
            sync=spawn.sync,
            cause=spawn.cause,
            token_budget=spawn.token_budget,
            cost_budget=spawn.cost_budget,
            queued_at=moment,
            queue_until=moment + timedelta(seconds=limits.queue_seconds),
            **place,
        )
    )
    make_session(session.connection, spawn.session_key, packet.agent, parent_key=session.key)
    for artifact in packet.artifacts:
        raise_label(session.connection, spawn.session_key, artifact.path, artifact.label)
    task = Envelope(
        message_id=task_id(spawn.run_id),
        sender=Sender(kind=SenderKind.PARENT, id=session.key),
        label=spawn.label,
    )
    mailbox.post(session.connection, spawn.session_key, task, packet.task)
    return get(session.connection, spawn.run_id)


def task_id(run_id: str) -> str:
    """The id of the message that holds a run's task."""
    return f"task_{run_id}"


def _spawn(connection: Connection, request: ToolRequest, spawn: Spawn, limits: Limits) -> Spawned:
    made = of_call(connection, request)
    if made is not None:
        return Spawned(run=made, position=position(connection, made))
    above = of_session(connection, request.session_key)
    queued = _check_room(connection, request, spawn.packet.depth, limits)
    if above is not None:
        spawn = _within(spawn, budgets.left(connection, above.path))
    with SessionWriter(connection, request.session_key) as session:
        place = {
            "path": f"{above.path if above else ''}{spawn.run_id}/",
            "parent_turn": request.turn,
            "parent_step": request.step,
            "parent_call": request.call,
            "epoch": session.row.epoch,
        }
        run = insert_run(session, spawn, place, limits)
        if spawn.sync:
            longest = timedelta(seconds=limits.queue_seconds + limits.run_seconds)
            waits.open_wait(
                session, request, (run.session_key,), now() + 2 * longest, level=request.label
            )
        if queued is None:
            return Spawned(run=start(session, run.run_id, limits))
        session.tell(
            EventKind.RUN_QUEUED, run_id=run.run_id, session_key=run.session_key, agent=run.agent
        )
    return Spawned(run=run, position=queued + 1)


def _check_room(
    connection: Connection, request: ToolRequest, depth: int, limits: Limits
) -> int | None:
    """How many runs a new one has to wait behind; None when there is a place for it."""
    above = of_session(connection, request.session_key)
    if above is not None and above.state is RunState.STOPPING:
        raise Denied("This run is being stopped and spawns nothing more.")
    _check_depth(depth, limits)
    running = count(connection, request.session_key, UNDER_WAY)
    queued = count(connection, request.session_key, (RunState.QUEUED,))
    if running < limits.children and not queued:
        return None
    _check_queue(running, queued, limits)
    return queued


def position(connection: Connection, run: Run) -> int | None:
    """The place of a run in its parent's queue, from 1; None when it does not wait."""
    if run.state is not RunState.QUEUED:
        return None
    query = select(func.count()).where(
        runs.c.parent_key == run.parent_key,
        runs.c.state == RunState.QUEUED,
        runs.c.queued_at <= run.queued_at,
    )
    return int(connection.scalar(query) or 1)


def _within(spawn: Spawn, left: budgets.Left) -> Spawn:
    """The same, with budgets of at most what is left above it."""
    for what, amount in (("tokens", left.tokens), ("dollars", left.cost)):
        if amount is not None and amount <= 0:
            raise LimitExceeded(
                f"Of the {what} that this run and all below it may use, none are left.",
                "Finish with what there is.",
            )
    return spawn.model_copy(
        update={
            "token_budget": budgets.smaller(spawn.token_budget, left.tokens),
            "cost_budget": budgets.smaller(spawn.cost_budget, left.cost),
        }
    )


def _check_depth(depth: int, limits: Limits) -> None:
    if depth > limits.spawn_depth:
        raise LimitExceeded(
            f"The run would be at depth {depth}; limits.spawn_depth is {limits.spawn_depth}.",
            "Do the work in this session, or hand it back to the one above.",
        )


def _check_queue(running: int, queued: int, limits: Limits) -> None:
    if limits.spawn_queue == 0:
        raise LimitExceeded(
            f"{running} runs of this session are under way; limits.children is "
            f"{limits.children}, and limits.spawn_queue is 0, so none may wait.",
            "Wait for one to end (subagents wait), or stop one (subagents kill).",
        )
    if queued >= limits.spawn_queue:
        raise LimitExceeded(
            f"{queued} runs of this session wait for a place; limits.spawn_queue is "
            f"{limits.spawn_queue}.",
            "Wait for some to end (subagents wait), then spawn again.",
        )


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
