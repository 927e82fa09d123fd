"""Runs told to stop, steered, and brought to their end.

Invariant: a subtree is stopped in one transaction, before anyone is woken: a run that spawns
meanwhile finds that it may not. Nothing below a run is under way when it has ended. Whatever is
done again, by a call whose report was lost, does nothing more.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import Connection, and_, exists, or_, select, update

from perdure.delegation.handing import unstarted
from perdure.delegation.results import RunResult
from perdure.domain.envelopes import Envelope
from perdure.domain.errors import RateLimited
from perdure.domain.labels import Label, join
from perdure.domain.limits import Limits
from perdure.domain.messages import Frozen
from perdure.domain.runs import EndReason, RunState
from perdure.domain.states import EventKind
from perdure.store import budgets, mailbox, waits
from perdure.store.clock import now
from perdure.store.database import Database
from perdure.store.delegation_tables import runs
from perdure.store.kept_results import keep_what_waits
from perdure.store.run_ends import end, listeners
from perdure.store.runs import Address, Run, get, run_of, start
from perdure.store.session_writer import SessionWriter
from perdure.store.spawning import Spawn, insert_run
from perdure.store.tables import mailbox as mailbox_table
from perdure.store.trees import in_subtree

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


class Ended(Frozen):
    """What the end of a run came to: the run, which goes on if it has something outstanding, and
    who is to be woken."""

    run: Run
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

    async def outstanding(self, run: Run) -> bool:
        """Whether something is to come yet: from a run that it has spawned, or a message that is
        to join its turn."""
        return await self._database.read(_outstanding, run)

    async def ended(self, run: Run) -> Ended:
        """Who is to be woken for a run that has ended, once more."""
        return await self._database.write(_wake_for, run.run_id)

    async def end(self, run_id: str, result: RunResult, label: Label, *, final: bool) -> Ended:
        """End a run with its result, and stop all below it. One that has ended is left as it is;
        so is one that has something `outstanding`, unless this is `final`.

        Raises:
            NotFound: when there is none of that id.
        """
        return await self._database.write(_end, run_id, result, label, final)


def _end(
    connection: Connection, run_id: str, result: RunResult, label: Label, final: bool
) -> Ended:
    run = get(connection, run_id)
    if run.state is not RunState.ENDED:
        if not final and _outstanding(connection, run):
            return Ended(run=run)
        with SessionWriter(connection, run.parent_key) as parent:
            end(parent, run, result, label)
        with SessionWriter(connection, run.session_key) as own:
            keep_what_waits(own, "run ended")
    return _wake_for(connection, run_id)


def _wake_for(connection: Connection, run_id: str) -> Ended:
    run = get(connection, run_id)
    _, wake = _stop_tree(connection, run, EndReason.KILLED)
    return Ended(run=run, wake=tuple(dict.fromkeys((*wake, *listeners(connection, run)))))


def _outstanding(connection: Connection, run: Run) -> bool:
    spawned = exists().where(
        runs.c.parent_key == run.session_key,
        or_(
            runs.c.state != RunState.ENDED,
            # The call that waited for it has its result.
            and_(runs.c.handed_at.is_(None), runs.c.sync.is_(False)),
        ),
    )
    joining = exists().where(mailbox_table.c.session_key == run.session_key, mailbox_table.c.joins)
    return bool(connection.scalar(select(or_(spawned, joining))))


def _stop(connection: Connection, run_id: str, reason: EndReason) -> Stopped:
    top = get(connection, run_id)
    if top.state is RunState.ENDED:
        return Stopped(run=top)
    count, wake = _stop_tree(connection, top, reason)
    return Stopped(run=get(connection, run_id), descendants=count - 1, wake=wake)


def _stop_tree(
    connection: Connection, top: Run, reason: EndReason
) -> tuple[int, tuple[Address, ...]]:
    """Stop what has not ended of a run and all below it: how many that were, and who is to be
    woken."""
    rows = connection.execute(
        select(runs)
        .where(in_subtree(top.path), runs.c.state != RunState.ENDED)
        # From the top: what is below a run that stops is kept where it is.
        .order_by(runs.c.depth, runs.c.queued_at)
    ).all()
    wake: list[Address] = []
    for run in map(run_of, rows):
        with SessionWriter(connection, run.parent_key) as parent:
            if run.state is RunState.QUEUED:
                # It has no workflow that could end it.
                end(parent, run, unstarted(run.run_id, run.session_key, reason), run.label)
                wake += listeners(connection, run)
                continue
            wake.append(Address(session_key=run.session_key, agent=run.agent))
            if run.state is RunState.RUNNING:
                connection.execute(
                    update(runs)
                    .where(runs.c.run_id == run.run_id)
                    .values(state=RunState.STOPPING, stop=reason)
                )
                parent.tell(EventKind.RUN_STOPPING, run_id=run.run_id, reason=reason)
    return len(rows), tuple(dict.fromkeys(wake))


def _replace(connection: Connection, run_id: str, spawn: Spawn, limits: Limits) -> Steered:
    old = get(connection, run_id)
    made = connection.execute(
        select(runs).where(runs.c.follows == run_id, runs.c.cause == spawn.cause)
    ).one_or_none()
    if made is not None:
        return _steered(connection, run_id, run_of(made))
    _check_pause(old)
    if old.state is not RunState.RUNNING:
        return Steered(run=old)
    left = budgets.left(connection, old.path)
    connection.execute(
        update(runs).where(runs.c.run_id == run_id).values(steered_at=now(), handed_at=now())
    )
    stopped = _stop(connection, run_id, EndReason.KILLED)
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
        changes = {
            # What its parent handed over is in its packet still.
            "label": join(old.label, spawn.label),
            "token_budget": left.tokens,
            "cost_budget": left.cost,
        }
        insert_run(parent, spawn.model_copy(update=changes), place, limits)
        waits.move(connection, old.session_key, spawn.session_key)
        # It takes the place that the old one leaves, before those in the queue.
        successor = start(parent, spawn.run_id, limits)
        parent.tell(EventKind.RUN_STEERED, run_id=run_id, successor=spawn.run_id)
    return _steered(connection, run_id, successor, stopped.wake)


def _steered(
    connection: Connection, run_id: str, successor: Run, wake: tuple[Address, ...] | None = None
) -> Steered:
    if wake is None:
        wake = _stop(connection, run_id, EndReason.KILLED).wake
    heard = (*wake, *listeners(connection, successor))
    return Steered(
        run=get(connection, run_id), successor=successor, wake=tuple(dict.fromkeys(heard))
    )


def _inject(connection: Connection, run_id: str, envelope: Envelope, text: str) -> Steered:
    run = get(connection, run_id)
    steered = Steered(run=run, wake=(Address(session_key=run.session_key, agent=run.agent),))
    if mailbox.knows(connection, run.session_key, envelope.message_id):
        return steered
    _check_pause(run)
    if run.state is not RunState.RUNNING:
        return Steered(run=run)
    connection.execute(update(runs).where(runs.c.run_id == run_id).values(steered_at=now()))
    mailbox.post(connection, run.session_key, envelope, text)
    with SessionWriter(connection, run.parent_key) as parent:
        parent.tell(EventKind.RUN_STEERED, run_id=run_id, message_id=envelope.message_id)
    return steered


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
