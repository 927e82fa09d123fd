"""A session that grows as sessions do, but in bulk: turns written many at a time, and a sweep at
every turn after which one would be asked for.

The rows are those that a session writes, indexes included; the sweeps are Perdure's own, with the
rehearsal model as the summariser: it extracts, and fills the length it is asked for.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from activities.compaction import Compaction
from activities.context_tools import ContextTools
from activities.contexts import Contexts
from activities.roster import Roster
from activities.toolboxes import Toolboxes
from perdure.config import Settings, load_settings
from perdure.context import message_tokens
from perdure.context.planning import threshold_tokens
from perdure.domain.compaction import CompactOutcome, CompactRequest
from perdure.domain.messages import Role, ToolCall
from perdure.domain.steps import OpenSession, StepRequest, ToolRequest
from perdure.guard import Guard
from perdure.memory import Memory
from perdure.store import Store
from perdure.store.clock import now
from perdure.store.tables import audit, messages, sessions
from perdure.store.turns import Begun
from perdure.workspace import Workspace

AGENT = "main"
#: Rows of one transaction.
_BATCH = 2_000
#: Half a million messages of summaries are beyond what a session may spend in a day by default.
_CONFIG = "[agents.main]\ntools = ['files', 'context']\n\n[context]\ndaily_tokens = 1000000000000\n"


class Home:
    """A home folder with its store, and all that works on contexts as a worker puts it together."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self.store = store
        guard = Guard(settings)
        self.roster = Roster(settings, store, Toolboxes(settings))
        self.compaction = Compaction(settings, store, self.roster, guard)
        memory = Memory.at(settings.memory, settings.home)
        self.contexts = Contexts(settings, store, self.compaction, memory)
        self.tools = ContextTools(settings, store, self.roster, guard, self.workspace)

    @classmethod
    async def open(cls, folder: Path) -> Home:
        """The home in an empty folder; close its store when done."""
        await asyncio.to_thread((folder / "perdure.toml").write_text, _CONFIG)
        settings = load_settings(folder, {})
        return cls(settings, await Store.open(settings.store_url, settings.audit_files))

    def workspace(self, request: ToolRequest) -> Workspace:
        """The files of the session that calls."""
        limits = self.settings.limits
        return Workspace.for_session(
            self.settings.home, request.session_key, limits.file_bytes, limits.tool_result_bytes
        )

    @property
    def bytes(self) -> int:
        """The size of the database once its log is taken up."""
        path = self.settings.home / "perdure.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return path.stat().st_size


@dataclass
class Swept:
    """What sweeps came to so far."""

    sweeps: int = 0
    published: int = 0
    fallbacks: int = 0
    seconds: float = 0.0
    peak_tokens: int = 0

    def add(self, outcome: CompactOutcome, seconds: float) -> None:
        """Count one sweep."""
        self.sweeps += 1
        self.published += outcome.published
        self.fallbacks += outcome.fallbacks
        self.seconds += seconds


class Session:
    """One session that grows. `budget` is what its history may take, in tokens."""

    def __init__(self, home: Home, key: str, budget: int) -> None:
        self.home = home
        self.key = key
        self.budget = budget
        self.count = 0
        self.turn = 0
        self.raw_tokens = 0
        self.characters = 0
        self.text_bytes = 0
        self.swept = Swept()
        self.threshold = threshold_tokens(budget, home.settings.context)
        self._context_tokens = 0
        self._seq = 0
        self._begun = now() - timedelta(days=400)
        self._rows: list[dict[str, Any]] = []

    @classmethod
    async def open(cls, home: Home, key: str, budget: int) -> Session:
        """A session that has said nothing yet."""
        await home.store.sessions.open(OpenSession(session_key=key, agent=AGENT))
        return cls(home, key, budget)

    async def say(self, *, text: str, answer: str, result: str | None = None) -> None:
        """One turn, with a tool call if there is a result; and a sweep if one is due after it."""
        self.turn += 1
        self._add(Role.USER, text, 0)
        if result is not None:
            call = ToolCall(id=f"call_{self.turn}", name="read", arguments='{"path": "a.txt"}')
            self._add(Role.ASSISTANT, "", 1, calls=(call,))
            self._add(Role.TOOL, result, 1, call=call)
        self._add(Role.ASSISTANT, answer, 2)
        self.swept.peak_tokens = max(self.swept.peak_tokens, self._context_tokens)
        if self._context_tokens > self.threshold:
            await self.written()
            await self._sweep()
        elif len(self._rows) >= _BATCH:
            await self.written()

    async def written(self) -> None:
        """Put what was said into the store."""
        rows, self._rows = self._rows, []
        if rows:
            await self.home.store.database.write(
                _append, self.key, rows, {"turn": self.turn, "next_seq": self._seq + 1}
            )

    def begun(self) -> Begun:
        """The step that comes next."""
        return Begun(attempt=1, epoch=0, message_count=self.count)

    def step(self) -> StepRequest:
        """The request of that step, in a turn that has not been written."""
        return StepRequest(
            session_key=self.key,
            agent=AGENT,
            turn=self.turn + 1,
            step=1,
            message_id=f"msg_{self._seq + 1}",
        )

    async def call(self, arguments: Any) -> Any:
        """The result of a context tool that the session calls."""
        return (await self.home.tools.call(self._request(), arguments)).value

    def workspace(self) -> Workspace:
        """Its files."""
        return self.home.workspace(self._request())

    async def model_calls(self) -> int:
        """How often a model was asked for a summary: every time is in the audit trail."""
        return await self.home.store.database.read(_asked, self.key)

    async def prompt_tokens(self) -> int:
        """What the summariser read, prompts included, as it reported: characters by four."""
        return await self.home.store.database.read(_prompt_tokens, self.key)

    def _request(self) -> ToolRequest:
        return ToolRequest(session_key=self.key, agent=AGENT, turn=self.turn + 1, step=1, call=0)

    async def _sweep(self) -> None:
        request = CompactRequest(
            session_key=self.key, agent=AGENT, turn=self.turn, budget=self.budget
        )
        started = time.perf_counter()
        outcome = await self.home.compaction.sweep(request)
        self.swept.add(outcome, time.perf_counter() - started)
        self._context_tokens = outcome.tokens_after

    def _add(
        self,
        role: Role,
        text: str,
        step: int,
        *,
        calls: tuple[ToolCall, ...] = (),
        call: ToolCall | None = None,
    ) -> None:
        self._seq += 1
        self.count += 1
        tokens = message_tokens(text, calls)
        self._context_tokens += tokens
        self.raw_tokens += tokens
        self.characters += len(text)
        self.text_bytes += len(text.encode())
        self._rows.append(
            {
                "session_key": self.key,
                "seq": self._seq,
                "id": f"msg_{self._seq}",
                "epoch": 0,
                "turn": self.turn,
                "step": step,
                "role": role,
                "text": text,
                "tool_calls": [one.model_dump(mode="json") for one in calls],
                "tool_call_id": None if call is None else call.id,
                "tool_name": None if call is None else call.name,
                "label": "PUBLIC",
                "tokens": tokens,
                "at": self._begun + timedelta(minutes=self._seq),
            }
        )


def _append(
    connection: Connection, key: str, rows: list[dict[str, Any]], state: dict[str, int]
) -> None:
    connection.execute(insert(messages), rows)
    counted = {"message_count": sessions.c.message_count + len(rows)}
    connection.execute(
        update(sessions).where(sessions.c.session_key == key).values({**state, **counted})
    )


def _asked(connection: Connection, key: str) -> int:
    asked = select(func.count()).where(audit.c.session_key == key)
    return int(connection.scalar(asked) or 0)


def _prompt_tokens(connection: Connection, key: str) -> int:
    return int(
        connection.scalar(select(sessions.c.input_tokens).where(sessions.c.session_key == key))
    )
