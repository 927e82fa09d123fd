"""Memory as people work with it: looked at, stored, pinned, forgotten, carried elsewhere.

Invariant: people see and store up to `gateway.level`, as they read answers up to it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from pydantic import ValidationError
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy

from perdure.config import Settings
from perdure.domain.errors import Denied, InvalidArgument, PerdureError, Unavailable
from perdure.domain.labels import Label, can_flow
from perdure.domain.memory import (
    MemoryEntry,
    MemoryPage,
    MemoryResults,
    MemoryStats,
    NewEntry,
    Origin,
    Reindexed,
    ReindexRequest,
    Sort,
    Stored,
    View,
)
from perdure.domain.messages import Frozen
from perdure.memory import Memory

#: The tenant of whoever names none.
DEFAULT_TENANT = "default"


class RefusedLine(Frozen):
    """A line of an import that was not stored, counted from 1, and why."""

    line: int
    reason: str


class Imported(Frozen):
    """What an import came to."""

    stored: int
    known: int
    refused: tuple[RefusedLine, ...] = ()


class MemoryClient:
    """The memory of one installation, for people."""

    def __init__(self, settings: Settings, temporal: Callable[[], Client] | None = None) -> None:
        self._settings = settings
        self._temporal = temporal
        self._memory = Memory.at(settings.memory, settings.home)

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings) -> AsyncIterator[MemoryClient]:
        """A client that needs no cluster, closed when the block ends."""
        client = cls(settings)
        try:
            yield client
        finally:
            await client.close()

    async def close(self) -> None:
        """Finish what was begun."""
        await self._memory.close()

    def view(self, tenant: str = DEFAULT_TENANT, **only: object) -> View:
        """What people see of a tenant's memory, narrowed by the fields of `View`."""
        return View.model_validate(
            {"tenant": tenant, "label": self._settings.gateway.level, **only}
        )

    def agent(self, name: str | None) -> str:
        """The agent of that name, or the default agent.

        Raises:
            NotFound: when there is none of that name.
        """
        self._settings.agent(name)
        return name or self._settings.default_agent

    async def search(self, view: View, query: str, *, limit: int = 10) -> MemoryResults:
        """See `Memory.search`."""
        return await self._memory.search(view, query, limit)

    async def get(self, view: View, path: str) -> MemoryEntry:
        """The entry at a path or of an id.

        Raises:
            NotFound: when there is none, or none at this level.
        """
        return await self._memory.get(view, path)

    async def store(self, new: NewEntry) -> Stored:
        """Remember something.

        Raises:
            Denied: it is a secret, or above `gateway.level`.
            InvalidArgument, LimitExceeded: it cannot be stored.
        """
        if not can_flow(new.label, self._settings.gateway.level):
            raise Denied(
                f"The label {new.label} is above gateway.level, {self._settings.gateway.level}."
            )
        (stored,) = await self._memory.store(new)
        return stored

    async def browse(
        self,
        view: View,
        *,
        offset: int = 0,
        limit: int = 20,
        sort: Sort = Sort.NEWEST,
        after: tuple[datetime, str] | None = None,
    ) -> MemoryPage:
        """A page of entries, superseded ones among them. With `after`, an entry's time and id, it
        begins after that entry."""
        return await self._memory.browse(view, offset=offset, limit=limit, sort=sort, after=after)

    async def pin(self, view: View, ids: Sequence[str], *, pinned: bool = True) -> tuple[str, ...]:
        """Pin entries of any level up to the view's, or unpin them; the ids that changed."""
        changed: list[str] = []
        for label in Label:
            if can_flow(label, view.label):
                at = view.model_copy(update={"label": label})
                changed += await self._memory.pin(at, ids, pinned=pinned)
        return tuple(dict.fromkeys(changed))

    async def delete(self, view: View, ids: Sequence[str]) -> tuple[str, ...]:
        """Forget entries; the ids that are gone."""
        return await self._memory.delete(view, ids)

    async def flush(self, view: View) -> tuple[str, ...]:
        """Forget all that the view shows; the ids that are gone."""
        return await self._memory.delete(view)

    async def export(self, view: View) -> AsyncIterator[MemoryEntry]:
        """Every entry, to be stored elsewhere by `load`."""
        async for entry in self._memory.entries(view):
            yield entry

    async def load(self, lines: Iterable[str], *, tenant: str = DEFAULT_TENANT) -> Imported:
        """Store exported entries, one JSON object a line, in `tenant`. Loading twice changes
        nothing; a line that cannot be stored is told, and the others are stored."""
        entries: list[tuple[int, MemoryEntry]] = []
        refused: list[RefusedLine] = []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                entry = MemoryEntry.model_validate_json(line)
            except ValidationError as error:
                why = error.errors(include_url=False, include_input=False)[0]
                where = ".".join(map(str, why["loc"])) or "the line"
                refused.append(RefusedLine(line=number, reason=f"{where}: {why['msg']}"))
                continue
            entries.append((number, entry))
        superseded: dict[str, list[str]] = {}
        for _, entry in entries:
            if entry.superseded_by is not None:
                superseded.setdefault(entry.superseded_by, []).append(entry.id)
        counts = {True: 0, False: 0}
        # What supersedes another comes after it.
        for number, entry in sorted(entries, key=lambda pair: pair[1].superseded_by is None):
            try:
                stored = await self.store(_new(entry, tenant, superseded.get(entry.id, ())))
            except PerdureError as error:
                if isinstance(error, Unavailable):
                    raise
                refused.append(RefusedLine(line=number, reason=str(error)))
                continue
            counts[stored.new] += 1
        return Imported(stored=counts[True], known=counts[False], refused=tuple(refused))

    async def stats(self, view: View) -> MemoryStats:
        """The memory in figures."""
        return await self._memory.stats(view)

    # Embedding anew --------------------------------------------------------------------------

    async def reindex(self, tenant: str | None = None) -> str:
        """Have a worker embed what the configured model has not embedded; the id of the workflow,
        the one under way if there is one.

        Raises:
            Unavailable: when this client only reads.
        """
        if self._temporal is None:
            raise Unavailable("This client has no cluster.", "Connect it, or embed here.")
        workflow_id = f"perdure-reindex/{self._settings.temporal.queue}/{tenant or 'all'}"
        await self._temporal().start_workflow(
            "MemoryReindex",
            ReindexRequest(tenant=tenant),
            id=workflow_id,
            task_queue=self._settings.temporal.queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            static_summary=f"embed anew with {self._settings.memory.embedder}",
        )
        return workflow_id

    async def reindex_here(self, tenant: str | None, progress: Callable[[Reindexed], None]) -> None:
        """Embed in this process instead. Cut off, it goes on where it stood."""
        for one in [tenant] if tenant else await self._memory.tenants():
            await self._memory.reindex(one, progress)


def _new(entry: MemoryEntry, tenant: str, supersedes: Sequence[str]) -> NewEntry:
    if not entry.path.startswith("memory/"):
        raise InvalidArgument(f"{entry.path} is no path of a memory.")
    if entry.origin is Origin.FILE:
        raise InvalidArgument(
            f"{entry.path} is a part of a memory file, which stays with its file."
        )
    return NewEntry(
        tenant=tenant,
        key=entry.path.removeprefix("memory/"),
        supersedes=tuple(supersedes),
        **entry.model_dump(exclude={"id", "tenant", "path", "superseded_by"}),
    )
