"""What was delegated: each run, how it ended, and how its result came back.

Invariant: facts of the store and of the files in the parents' workspaces; nothing is changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select

from gateway.demo.cast import LEAD, REPORT
from perdure.config import Settings
from perdure.domain.messages import Frozen
from perdure.domain.runs import EndReason, RunState
from perdure.store import Store
from perdure.store.delegation_tables import runs
from perdure.store.runs import Run, run_of
from perdure.workspace import Workspace


class Delegated(Frozen):
    """A run. Those that it stands in for are told by `follows`, the files it was given by
    `documents`."""

    run_id: str
    session_key: str
    parent_key: str
    documents: tuple[str, ...]
    state: RunState
    end_reason: EndReason | None
    follows: str | None
    #: Whether the result was handed over, or told where it could not be.
    handed: bool
    seconds: float
    #: What the parent reads of its answer.
    response: str
    #: The whole answer, as it lies in the parent's workspace; None where there is no file.
    kept: str | None


class Delegation(Frozen):
    """All runs, in the order in which they were spawned, and the report that was made of them."""

    runs: tuple[Delegated, ...]
    report: str


async def gather_delegation(store: Store, settings: Settings, keys: Sequence[str]) -> Delegation:
    """The runs of these sessions."""
    found = await store.database.read(_runs, keys)
    return Delegation(
        runs=tuple(_delegated(settings, run) for run in found),
        report=_file(settings, LEAD, REPORT) or "",
    )


def _runs(connection: Connection, keys: Sequence[str]) -> list[Run]:
    rows = connection.execute(
        select(runs).where(runs.c.parent_key.in_(keys)).order_by(runs.c.run_id)
    )
    return [run_of(row) for row in rows]


def _delegated(settings: Settings, run: Run) -> Delegated:
    path = run.result.full_result_path if run.result else None
    ended, started = run.ended_at, run.started_at
    return Delegated(
        **run.model_dump(
            include={"run_id", "session_key", "parent_key", "state", "end_reason", "follows"}
        ),
        documents=tuple(artifact.path for artifact in run.packet.artifacts),
        handed=run.handed_at is not None,
        seconds=(ended - started).total_seconds() if ended and started else 0.0,
        response=run.result.response if run.result else "",
        kept=_file(settings, run.parent_key, path) if path else None,
    )


def _file(settings: Settings, session_key: str, path: str) -> str | None:
    place = Workspace.for_session(settings.home, session_key).root / path
    try:
        return place.read_bytes().decode(errors="replace")
    except OSError:
        return None
