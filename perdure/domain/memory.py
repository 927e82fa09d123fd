"""What an agent remembers, as every room sees it: entries, who may see them, what is asked.

Invariant: facts only. An entry's content never changes; what contradicts it is another entry that
supersedes it.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from perdure.domain.labels import Label
from perdure.domain.messages import Frozen

#: The largest entry, in bytes of UTF-8. More belongs into a file of the workspace.
MAX_CONTENT_BYTES = 32_768
#: What a search shows of an entry, in characters.
PREVIEW = 500
#: Results of one search.
MAX_RESULTS = 50


class MemoryType(StrEnum):
    """What kind of knowledge an entry holds (Tulving's kinds, as agent memories name them)."""

    #: For the task at hand.
    WORKING = "working"
    #: What happened, and when.
    EPISODIC = "episodic"
    #: What is so.
    SEMANTIC = "semantic"
    #: How something is done.
    PROCEDURAL = "procedural"


class Trust(StrEnum):
    """How far an entry may be relied on."""

    #: Laid down by who runs the installation.
    SYSTEM = "system"
    #: What the agent learned from the people it talks to.
    LEARNED = "learned"
    #: From tools, files of others, other sessions; or it reads like an instruction.
    EXTERNAL = "external"


class Origin(StrEnum):
    """How an entry came to be."""

    AGENT = "agent"
    AUTOMATIC = "automatic"
    PERSON = "person"
    #: A part of a memory file in a session's workspace; no other session sees it.
    FILE = "file"


class Sort(StrEnum):
    """The order of a listing."""

    NEWEST = "newest"
    OLDEST = "oldest"


class MemoryEntry(Frozen):
    """One remembered thing. Two entries with the same id say the same."""

    id: str
    tenant: str
    agent: str
    path: str
    content: str
    tags: tuple[str, ...] = ()
    memory_type: MemoryType = MemoryType.SEMANTIC
    trust: Trust = Trust.LEARNED
    label: Label = Label.PUBLIC
    pinned: bool = False
    created_at: datetime
    origin: Origin = Origin.AGENT
    #: Where it was learned: the session, and the messages that say so.
    session_key: str | None = None
    message_ids: tuple[str, ...] = ()
    #: The entry of the same level that says otherwise since.
    superseded_by: str | None = None


class NewEntry(Frozen):
    """Something to be remembered.

    `key` is its path below `memory/`; another content under the same key supersedes the first.
    `supersedes` are ids that it contradicts.
    """

    tenant: str
    agent: str
    content: str
    key: str | None = None
    tags: tuple[str, ...] = ()
    memory_type: MemoryType = MemoryType.SEMANTIC
    trust: Trust = Trust.LEARNED
    label: Label = Label.PUBLIC
    pinned: bool = False
    created_at: datetime | None = None
    origin: Origin = Origin.AGENT
    session_key: str | None = None
    message_ids: tuple[str, ...] = ()
    supersedes: tuple[str, ...] = ()


class View(Frozen):
    """Who looks, and at what: nothing above `label` exists for them.

    `agent` None sees the entries of every agent of the tenant. `session_key` is whose memory
    files are seen too.
    """

    tenant: str
    label: Label = Label.PUBLIC
    agent: str | None = None
    session_key: str | None = None
    tags: tuple[str, ...] = ()
    memory_type: MemoryType | None = None
    trust: Trust | None = None


class Stored(Frozen):
    """An entry is remembered; `new` is False where it was before."""

    id: str
    path: str
    new: bool


class MemoryHit(Frozen):
    """One result of a search. `score` orders the results of one search and means nothing else."""

    id: str
    path: str
    preview: str
    score: float
    tags: tuple[str, ...]
    memory_type: MemoryType
    trust: Trust
    label: Label
    created_at: datetime


class MemoryResults(Frozen):
    """The best hits, and how many entries were looked through: what the filters and operators
    left. `note` tells when not everything could be searched."""

    results: tuple[MemoryHit, ...]
    total: int
    note: str | None = None


class MemoryPage(Frozen):
    """A page of entries, and how many there are in all."""

    entries: tuple[MemoryEntry, ...]
    total: int


class MemoryStats(Frozen):
    """A tenant's memory in figures, as far as the viewer sees it."""

    entries: int
    pinned: int
    superseded: int
    by_agent: dict[str, int]
    by_label: dict[str, int]
    by_type: dict[str, int]
    by_trust: dict[str, int]
    embedder: str
    #: Entries that are found by words only until they are embedded.
    not_embedded: int


class RememberRequest(Frozen):
    """Keep what is worth keeping of a turn."""

    session_key: str
    agent: str
    turn: int
    label: Label = Label.PUBLIC


class Remembered(Frozen):
    """How many facts a turn left, and how many older ones they contradict."""

    stored: int = 0
    superseded: int = 0


class ReindexRequest(Frozen):
    """Embed what is not embedded with the configured model; of one tenant, or of all."""

    tenant: str | None = None


class Reindexed(Frozen):
    """How far a reindex has come, in entries."""

    done: int = 0
    total: int = 0


class Tended(Frozen):
    """What an upkeep found: tables, and rows in them."""

    tables: int = 0
    rows: int = 0
