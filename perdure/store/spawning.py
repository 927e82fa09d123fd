"""Runs spawned: checked against the limits, and given a place or put into the queue.

Invariant: a call spawns one run, however often it is made. The row, the run's own session and its
task are one transaction, in which the limits hold.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, func, insert, select

from perdure.delegation.packet import SpawnPacket
from perdure.domain.envelopes import Envelope, Sender, SenderKind
from perdure.domain.errors import Denied, LimitExceeded
from perdure.domain.labels import Label
from perdure.domain.limits import Limits
from perdure.domain.messages import Frozen
from perdure.domain.runs import RunState
from perdure.domain.states import EventKind
from perdure.domain.steps import ToolRequest
from perdure.store import budgets, mailbox, waits
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.delegation_tables import runs
from perdure.store.file_labels import raise_label
from perdure.store.runs import UNDER_WAY, Run, count, get, of_call, of_session, start
from perdure.store.session_writer import SessionWriter
from perdure.store.sessions import make_session


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


class Spawning:
    """Making runs."""

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

    async def spawned_by(self, request: ToolRequest) -> Spawned | None:
        """The newest run of a call, with its place in the queue; None when it has spawned none."""
        return await self._database.read(_spawned_by, request)


def _spawned_by(connection: Connection, request: ToolRequest) -> Spawned | None:
    run = of_call(connection, request)
    return None if run is None else Spawned(run=run, position=position(connection, run))


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
