"""Memory as people work with it: looked at, stored, pinned, forgotten, carried elsewhere.

Invariant: people see and store up to their level, as they read answers up to it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from pydantic import ValidationError
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy

from gateway.bounds import DEFAULT_TENANT, Bounds
from perdure.config import Settings
from perdure.domain.errors import InvalidArgument, PerdureError, Unavailable
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

    def __init__(
        self,
        settings: Settings,
        memory: Memory,
        bounds: Bounds,
        temporal: Callable[[], Client] | None = None,
    ) -> None:
        self._settings = settings
        self._temporal = temporal
        self._memory = memory
        self._bounds = bounds

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings) -> AsyncIterator[MemoryClient]:
        """A client that needs no cluster, closed when the block ends."""
        client = cls(
            settings, Memory.at(settings.memory, settings.home), Bounds(settings.gateway.level)
        )
        try:
            yield client
        finally:
            await client.close()

    async def close(self) -> None:
        """Finish what was begun."""
        await self._memory.close()

    def view(self, tenant: str | None = None, **only: object) -> View:
        """What people see of a tenant's memory, narrowed by the fields of `View`; without a tenant
        the caller's own.

        Raises:
            Denied: when they may not ask for that tenant, as in everything that takes a view.
        """
        return self._bounds.view(tenant, **only)

    def agent(self, name: str | None) -> str:
        """The agent of that name, or the default agent.

        Raises:
            NotFound: when there is none of that name.
        """
        self._settings.agent(name)
        return name or self._settings.default_agent

    async def search(self, view: View, query: str, *, limit: int = 10) -> MemoryResults:
        """See `Memory.search`."""
        return await self._memory.search(self._bounds.narrowed(view), query, limit)

    async def get(self, view: View, path: str) -> MemoryEntry:
        """The entry at a path or of an id.

        Raises:
            NotFound: when there is none, or none at this level.
        """
        return await self._memory.get(self._bounds.narrowed(view), path)

    async def store(self, new: NewEntry) -> Stored:
        """Remember something.

        Raises:
            Denied: it is a secret, or the caller may not have that remembered.
            InvalidArgument, LimitExceeded: it cannot be stored.
        """
        self._bounds.check_entry(new)
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
        view = self._bounds.narrowed(view)
        return await self._memory.browse(view, offset=offset, limit=limit, sort=sort, after=after)

    async def pin(self, view: View, ids: Sequence[str], *, pinned: bool = True) -> tuple[str, ...]:
        """Pin entries of any level up to the view's, or unpin them; the ids that changed."""
        view = self._bounds.narrowed(view)
        changed: list[str] = []
        for label in Label:
            if can_flow(label, view.label):
                at = view.model_copy(update={"label": label})
                changed += await self._memory.pin(at, ids, pinned=pinned)
        return tuple(dict.fromkeys(changed))

    async def delete(self, view: View, ids: Sequence[str]) -> tuple[str, ...]:
        """Forget entries; the ids that are gone."""
        return await self._memory.delete(self._bounds.narrowed(view), ids)

    async def flush(self, view: View) -> tuple[str, ...]:
        """Forget all that the view shows; the ids that are gone."""
        return await self._memory.delete(self._bounds.narrowed(view))

    async def export(self, view: View) -> AsyncIterator[MemoryEntry]:
        """Every entry, to be stored elsewhere by `load`."""
        async for entry in self._memory.entries(self._bounds.narrowed(view)):
            yield entry

    async def load(self, lines: Iterable[str], *, tenant: str = DEFAULT_TENANT) -> Imported:
        """Store exported entries, one JSON object a line, in `tenant`. Loading twice changes
        nothing; a line that cannot be stored is told, and the others are stored.

        Raises:
            Denied: when the caller may not ask for that tenant.
        """
        self._bounds.check_tenant(tenant)
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
        return await self._memory.stats(self._bounds.narrowed(view))

    # Embedding anew --------------------------------------------------------------------------

    async def reindex(self, tenant: str | None = None) -> str:
        """Have a worker embed what the configured model has not embedded; the id of the workflow,
        the one under way if there is one.

        Raises:
            Unavailable: when this client only reads.
            Denied: when the caller may not ask for that tenant, or for all.
        """
        self._bounds.check_tenant(tenant)
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
        """Embed in this process instead. Cut off, it goes on where it stood.

        Raises:
            Denied: as `reindex` does.
        """
        self._bounds.check_tenant(tenant)
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
