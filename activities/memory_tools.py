"""The memory tools: what stands behind them.

Invariant: tenant, agent and level are the calling session's; nothing is deleted that a person has
not approved by this very call.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from perdure.config import Settings
from perdure.domain.approvals import ApprovalState
from perdure.domain.errors import Denied, InvalidArgument, NotFound, PerdureError
from perdure.domain.keys import SessionKey
from perdure.domain.memory import MemoryEntry, MemoryResults, NewEntry, Origin, Trust, View
from perdure.domain.messages import Frozen
from perdure.domain.steps import ToolRequest
from perdure.guard import Guard
from perdure.memory import Memory, MemoryFile
from perdure.memory.search import rendered
from perdure.store import Store
from perdure.tools.memory import Action, MemoryGet, MemoryManage, MemorySearch, MemoryStore
from perdure.workspace import FileText, Workspace

#: The memory files of a workspace, and how much of them is indexed.
_FILE = "MEMORY.md"
_FOLDER = "memory"
_MOST_FILES = 200
_MOST_BYTES = 256_000
#: Sessions whose files are known to be indexed as they are.
_REMEMBERED = 1_000


class StoredNow(Frozen):
    """The result of `memory_store`."""

    stored: bool = True
    id: str
    path: str


class Lines(Frozen):
    """The result of `memory_get` for an entry."""

    path: str
    start_line: int
    end_line: int
    total_lines: int
    content: str


class Shown(Frozen):
    """An entry as `memory_manage` shows it."""

    id: str
    path: str
    agent: str
    content: str
    tags: tuple[str, ...]
    memory_type: str
    trust: str
    label: str
    pinned: bool
    created_at: str
    superseded_by: str | None
    session_key: str | None
    message_ids: tuple[str, ...]


class Managed(Frozen):
    """The result of `memory_manage`: what it matched, and what it changed."""

    action: Action
    matched: int
    changed: int = 0
    ids: tuple[str, ...] = ()
    entries: tuple[Shown, ...] = ()
    stats: dict[str, Any] | None = None


class MemoryTools:
    """Runs the memory tools."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        guard: Guard,
        workspace: Callable[[ToolRequest], Workspace],
        memory: Memory | None = None,
    ) -> None:
        self._store = store
        self._guard = guard
        self._workspace = workspace
        self._memory = memory or Memory.at(settings.memory, settings.home)
        self._indexed: OrderedDict[str, str] = OrderedDict()

    async def call(self, request: ToolRequest, arguments: BaseModel) -> Any:
        """The tool's result.

        Raises:
            PerdureError: what the model is to read.
        """
        match arguments:
            case MemoryStore():
                return await self._remember(request, arguments)
            case MemorySearch():
                return await self._search(request, arguments)
            case MemoryGet():
                return await self._get(request, arguments)
            case MemoryManage():
                return await self._manage(request, arguments)
        raise InvalidArgument(f"{type(arguments).__name__} is no memory tool.")

    async def _remember(self, request: ToolRequest, asked: MemoryStore) -> StoredNow:
        said = await self._store.remembering.turn(request.session_key, request.turn)
        # What another session asked for is not what this one learned of its people.
        others = any(one.from_session is not None for one in said)
        new = NewEntry(
            **_whose(request),
            **asked.model_dump(include={"content", "tags", "memory_type", "key"}),
            trust=Trust.EXTERNAL if others else Trust.LEARNED,
            label=request.label,
            origin=Origin.AGENT,
            session_key=request.session_key,
            message_ids=tuple(one.id for one in said[:1]),
        )
        (stored,) = await self._memory.store(new)
        return StoredNow(id=stored.id, path=stored.path)

    async def _search(self, request: ToolRequest, asked: MemorySearch) -> MemoryResults:
        await self._index_files(request)
        view = View(**_whose(request), label=request.label, session_key=request.session_key)
        return await self._memory.search(view, asked.query, asked.limit)

    async def _get(self, request: ToolRequest, asked: MemoryGet) -> Lines | FileText:
        view = View(**_whose(request), label=request.label)
        if asked.end_line is not None and asked.end_line < asked.start_line:
            raise InvalidArgument(
                f"Lines {asked.start_line} to {asked.end_line} are none.",
                "end_line is not before start_line.",
            )
        try:
            entry = await self._memory.get(view, asked.path)
        except NotFound:
            if not _is_memory_file(asked.path):
                raise
            # As the tool read does it: a file above the session's level raises it, or is refused.
            return await asyncio.to_thread(
                self._workspace(request).read, asked.path, asked.start_line, asked.end_line
            )
        lines = entry.content.splitlines()
        end = min(asked.end_line or len(lines), len(lines))
        if asked.start_line > len(lines):
            raise InvalidArgument(
                f"{entry.path} has {len(lines)} lines; line {asked.start_line} is not there."
            )
        content = "\n".join(lines[asked.start_line - 1 : end])
        return Lines(
            path=entry.path,
            start_line=asked.start_line,
            end_line=end,
            total_lines=len(lines),
            content=rendered(content, entry.trust),
        )

    # Looking after it ------------------------------------------------------------------------

    async def _manage(self, request: ToolRequest, asked: MemoryManage) -> Managed:
        tenant = SessionKey.parse(request.session_key).tenant
        if asked.tenant_id not in (None, tenant):
            raise Denied("The memory of another tenant is not yours.", "Leave tenant_id out.")
        view = View(
            tenant=tenant,
            label=request.label,
            agent=asked.agent_id,
            tags=asked.tags,
            memory_type=asked.memory_type,
            trust=asked.trust_level,
        )
        ids = (*asked.ids, *((asked.id,) if asked.id is not None else ()))
        match asked.manage_action:
            case Action.STATS:
                stats = await self._memory.stats(view)
                return Managed(
                    action=asked.manage_action, matched=stats.entries, stats=stats.model_dump()
                )
            case Action.BROWSE | Action.EXPORT:
                page = await self._memory.browse(
                    view, offset=asked.offset, limit=asked.limit, sort=asked.sort
                )
                whole = asked.manage_action is Action.EXPORT
                entries = tuple(_shown(one, whole) for one in page.entries)
                return Managed(action=asked.manage_action, matched=page.total, entries=entries)
            case Action.PIN | Action.UNPIN:
                return await self._pin(view, _named(ids, asked), asked.manage_action)
            case Action.DELETE:
                await self._approved(request)
                gone = await self._memory.delete(view, _named(ids, asked))
            case Action.FLUSH:
                await self._approved(request)
                gone = await self._memory.delete(view)
        return Managed(action=asked.manage_action, matched=len(gone), changed=len(gone), ids=gone)

    async def _pin(self, view: View, ids: tuple[str, ...], action: Action) -> Managed:
        changed = await self._memory.pin(view, ids, pinned=action is Action.PIN)
        page = [await self._known(view, name) for name in ids]
        matched = [entry for entry in page if entry is not None]
        lower = [one.id for one in matched if one.label is not view.label]
        if lower:
            raise Denied(
                f"{', '.join(lower)} are of a lower level than this session.",
                "Have them pinned from a session of their level, or by a person.",
            )
        return Managed(action=action, matched=len(matched), changed=len(changed), ids=changed)

    async def _known(self, view: View, name: str) -> MemoryEntry | None:
        try:
            return await self._memory.get(view, name)
        except NotFound:
            return None

    async def _approved(self, request: ToolRequest) -> None:
        look = await self._store.claims.look(request)
        if look.approval is None or look.approval.state is not ApprovalState.APPROVED:
            raise Denied("Nobody approved this call.", "It waits for a person when asked anew.")

    # Memory files ----------------------------------------------------------------------------

    async def _index_files(self, request: ToolRequest) -> None:
        """Have the memory files of the session found as they are now."""
        look = await self._store.claims.look(request)
        files = await asyncio.to_thread(self._files, request, look.labels)
        told = "\0".join(f"{one.path}\0{one.label}\0{one.text}" for one in files)
        digest = hashlib.sha256(told.encode(errors="replace")).hexdigest()
        if self._indexed.get(request.session_key) == digest:
            return
        whose = _whose(request)
        await self._memory.keep_files(whose["tenant"], whose["agent"], request.session_key, files)
        self._indexed[request.session_key] = digest
        if len(self._indexed) > _REMEMBERED:
            self._indexed.popitem(last=False)

    def _files(self, request: ToolRequest, labels: dict[str, Any]) -> list[MemoryFile]:
        workspace = self._workspace(request)
        found: list[MemoryFile] = []
        for path in _memory_files(workspace):
            try:
                if workspace.file_size(path) > _MOST_BYTES:
                    continue
                text = workspace.read_bytes(path).decode(errors="replace")
                place = workspace.place(path)
            except PerdureError:
                continue  # gone meanwhile, or no file
            found.append(
                MemoryFile(path=path, text=text, label=self._guard.calls.file_label(place, labels))
            )
        return found


def _memory_files(workspace: Workspace) -> list[str]:
    if not workspace.root.is_dir():
        return []
    folder = workspace.root / _FOLDER
    names = sorted(one.name for one in folder.glob("*.md")) if folder.is_dir() else []
    return [_FILE, *(f"{_FOLDER}/{name}" for name in names[:_MOST_FILES])]


def _is_memory_file(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return path == _FILE or (folder == _FOLDER and name.endswith(".md"))


def _whose(request: ToolRequest) -> dict[str, str]:
    return {
        "tenant": SessionKey.parse(request.session_key).tenant,
        "agent": request.agent,
    }


def _named(ids: tuple[str, ...], asked: MemoryManage) -> tuple[str, ...]:
    if not ids:
        raise InvalidArgument(
            f"{asked.manage_action} names no entry.",
            "Name entries by id or ids, as browse has them.",
        )
    return ids


def _shown(entry: MemoryEntry, whole: bool) -> Shown:
    content = entry.content if whole else entry.content[:500]
    return Shown(
        content=rendered(content, entry.trust),
        created_at=entry.created_at.isoformat(),
        **entry.model_dump(include=set(Shown.model_fields) - {"content", "created_at"}),
    )
