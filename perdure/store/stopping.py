"""Runs told to stop, steered, and brought to their end.

Invariant: a subtree is stopped in one transaction, before anyone is woken: a run that spawns
meanwhile finds that it may not. A run ends once, with one reason.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Connection, select, update

from perdure.delegation.handing import unstarted
from perdure.delegation.results import RunResult
from perdure.domain.envelopes import Envelope
from perdure.domain.errors import RateLimited
from perdure.domain.labels import Label
from perdure.domain.limits import Limits
from perdure.domain.messages import Frozen
from perdure.domain.runs import EndReason, RunState
from perdure.domain.states import EventKind
from perdure.store import mailbox, waits
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.delegation_tables import runs
from perdure.store.file_labels import raise_label
from perdure.store.runs import Address, Run, Spawn, get, insert_run, run_of, start
from perdure.store.session_writer import SessionWriter

#: Between two steerings of one run, in seconds: time to take in the first.
STEER_PAUSE = 2.0


class Stopped(Frozen):
    """What a stop came to: how many runs below were stopped too, and who is to be woken."""

    run: Run
    descendants: int = 0
    wake: tuple[Address, ...] = ()


class Steered(Frozen):
    """What a steering came to: the run that takes the place of the old one, if one does."""

    run: Run
    successor: Run | None = None
    wake: tuple[Address, ...] = ()


class Stopping:
    """The writes that end runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def stop(self, run_id: str, reason: EndReason) -> Stopped:
        """Tell a run and all below it to stop; those in a queue end at once.

        A run that has ended is left as it is.

        Raises:
            NotFound: when there is none of that id.
        """
        return await self._database.write(_stop, run_id, reason)

    async def replace(self, run_id: str, spawn: Spawn, limits: Limits) -> Steered:
        """Stop a run, and start another in its place with what `spawn` says.

        A run that is not under way is left as it is.

        Raises:
            NotFound: when there is none of that id.
            RateLimited: when it was steered less than `STEER_PAUSE` seconds ago.
        """
        return await self._database.write(_replace, run_id, spawn, limits)

    async def inject(self, run_id: str, envelope: Envelope, text: str) -> Steered:
        """Lay a message into the mailbox of a run under way; it joins the turn there.

        Raises:
            NotFound: when there is none of that id.
            RateLimited: when it was steered less than `STEER_PAUSE` seconds ago.
        """
        return await self._database.write(_inject, run_id, envelope, text)

    async def repair(self, run_id: str, envelope: Envelope, text: str) -> None:
        """Lay down the message by which a run is told what is missing, once."""
        await self._database.write(_repair, run_id, envelope, text)

    async def will_write(self, run_id: str, path: str, label: Label) -> None:
        """Record the level of a file before it is written into the parent's workspace."""
        await self._database.write(_will_write, run_id, path, label)

    async def end(self, run_id: str, result: RunResult, label: Label) -> Run:
        """End a run with its result. One that has ended is left as it is."""
        return await self._database.write(_end, run_id, result, label)


def end(parent: SessionWriter, run: Run, result: RunResult, label: Label) -> None:
    """End a run of this session with its result, at the level of what it tells."""
    parent.connection.execute(
        update(runs)
        .where(runs.c.run_id == run.run_id)
        .values(
            state=RunState.ENDED,
            end_reason=result.end_reason,
            result=result.model_dump(mode="json"),
            label=label,
            reserved_tokens=0,
            ended_at=now(),
        )
    )
    parent.tell(
        EventKind.RUN_ENDED,
        run_id=run.run_id,
        session_key=run.session_key,
        reason=result.end_reason,
    )


def _end(connection: Connection, run_id: str, result: RunResult, label: Label) -> Run:
    run = get(connection, run_id)
    if run.state is RunState.ENDED:
        return run
    with SessionWriter(connection, run.parent_key) as parent:
        end(parent, run, result, label)
    return get(connection, run_id)


def _repair(connection: Connection, run_id: str, envelope: Envelope, text: str) -> None:
    run = get(connection, run_id)
    if not run.repairs:
        connection.execute(update(runs).where(runs.c.run_id == run_id).values(repairs=1))
    mailbox.post(connection, run.session_key, envelope, text)


def _will_write(connection: Connection, run_id: str, path: str, label: Label) -> None:
    raise_label(connection, get(connection, run_id).parent_key, path, label)


def _stop(connection: Connection, run_id: str, reason: EndReason) -> Stopped:
    top = get(connection, run_id)
    if top.state is RunState.ENDED:
        return Stopped(run=top)
    rows = connection.execute(
        select(runs)
        .where(
            runs.c.path.startswith(top.path, autoescape=True),
            runs.c.state.in_((RunState.QUEUED, RunState.RUNNING, RunState.STOPPING)),
        )
        .order_by(runs.c.depth.desc())
    ).all()
    wake = []
    for run in map(run_of, rows):
        with SessionWriter(connection, run.parent_key) as parent:
            if run.state is RunState.QUEUED:
                # It has no workflow that could end it.
                end(parent, run, unstarted(run.run_id, run.session_key, reason), run.label)
                wake.append(Address(session_key=parent.key, agent=parent.row.agent))
                continue
            wake.append(Address(session_key=run.session_key, agent=run.agent))
            if run.state is RunState.RUNNING:
                connection.execute(
                    update(runs)
                    .where(runs.c.run_id == run.run_id)
                    .values(state=RunState.STOPPING, stop=reason)
                )
                parent.tell(EventKind.RUN_STOPPING, run_id=run.run_id, reason=reason)
    return Stopped(
        run=get(connection, run_id), descendants=len(rows) - 1, wake=tuple(dict.fromkeys(wake))
    )


def _replace(connection: Connection, run_id: str, spawn: Spawn, limits: Limits) -> Steered:
    old = get(connection, run_id)
    _check_pause(old)
    if old.state is not RunState.RUNNING:
        return Steered(run=old)
    stopped = _stop(connection, run_id, EndReason.KILLED)
    connection.execute(
        update(runs).where(runs.c.run_id == run_id).values(steered_at=now(), handed_at=now())
    )
    with SessionWriter(connection, old.parent_key) as parent:
        place = {
            "path": old.path.removesuffix(f"{run_id}/") + f"{spawn.run_id}/",
            "parent_turn": old.parent_turn,
            "parent_step": old.parent_step,
            "parent_call": old.parent_call,
            "epoch": old.epoch,
            "follows": run_id,
            "steered_at": now(),
        }
        insert_run(parent, spawn, place, limits)
        waits.move(parent, old.session_key, spawn.session_key)
        # It takes the place that the old one leaves, before those in the queue.
        successor = start(parent, spawn.run_id, limits)
        parent.tell(EventKind.RUN_STEERED, run_id=run_id, successor=spawn.run_id)
        wake = (*stopped.wake, Address(session_key=parent.key, agent=parent.row.agent))
    return Steered(run=get(connection, run_id), successor=successor, wake=wake)


def _inject(connection: Connection, run_id: str, envelope: Envelope, text: str) -> Steered:
    run = get(connection, run_id)
    _check_pause(run)
    if run.state is not RunState.RUNNING:
        return Steered(run=run)
    connection.execute(update(runs).where(runs.c.run_id == run_id).values(steered_at=now()))
    mailbox.post(connection, run.session_key, envelope, text)
    with SessionWriter(connection, run.parent_key) as parent:
        parent.tell(EventKind.RUN_STEERED, run_id=run_id, message_id=envelope.message_id)
    return Steered(run=run, wake=(Address(session_key=run.session_key, agent=run.agent),))


def _check_pause(run: Run) -> None:
    if run.steered_at is None:
        return
    passed = now() - run.steered_at
    if passed < timedelta(seconds=STEER_PAUSE):
        raise RateLimited(
            f"The run {run.run_id} was steered {passed.total_seconds():.1f} s ago; "
            f"once every {STEER_PAUSE:g} s is allowed.",
            "Let it take in the first steering, then steer again.",
        )
