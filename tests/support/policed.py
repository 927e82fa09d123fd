"""A stack with labels, channels and rules, and what policy tests look at: results, events,
approvals, the audit trail, and every word that was stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import text

from perdure.audit import Record
from perdure.domain.approvals import Approval, ApprovalState
from perdure.domain.labels import Label
from perdure.domain.states import EventKind
from perdure.store.audit import AuditLog
from perdure.store.outbox import Event
from perdure.store.transcript import TurnResult
from perdure.workspace import Workspace
from tests.support.stack import Stack, until

TIMEOUT = 60

TOOLS = ("delete", "bogus", "ledger", "vault", "tell", "scribble")
_NAMES = ", ".join(f'"tests.support.policed_tools:{name}"' for name in TOOLS)
ALL_TOOLS = f'["files", "message", "policy", "sessions", {_NAMES}]'

#: Of every channel a test needs; a rule belongs to the test that needs it.
CONFIG = f"""
[agents.main]
tools = {ALL_TOOLS}

[channels.public]
url = "file:out/public.jsonl"
recipients = {{ anyone = {{ level = "RESTRICTED" }} }}

[channels.staff]
url = "file:out/staff.jsonl"
level = "INTERNAL"
recipients = {{ team = {{ level = "INTERNAL" }} }}

[channels.board]
url = "file:out/board.jsonl"
level = "CONFIDENTIAL"
recipients = {{ chair = {{ level = "CONFIDENTIAL" }} }}

[workspace.labels]
"finance/**" = "CONFIDENTIAL"
"staff/**" = "INTERNAL"
"vault/**" = "RESTRICTED"

[tools.ledger]
label = "CONFIDENTIAL"

[tools.vault]
label = "RESTRICTED"
"""


def rule(
    name: str, hook: str, action: str, *when: tuple[str, str, Any], priority: int = 10, **more: str
) -> str:
    """A `[[policy.rules]]` table."""
    conditions = ", ".join(
        f"{{ field = {json.dumps(field)}, op = {json.dumps(op)}, value = {json.dumps(value)} }}"
        for field, op, value in when
    )
    lines = [f"{key} = {json.dumps(value)}" for key, value in more.items()]
    return "\n".join(
        [
            "[[policy.rules]]",
            f'id = "{name}"',
            f'hook = "{hook}"',
            f"priority = {priority}",
            f"when = [{conditions}]",
            f'action = "{action}"',
            *lines,
            "",
        ]
    )


def call(tool: str, **arguments: Any) -> str:
    """A directive of the rehearsal model that calls a tool."""
    return f"/{tool} {json.dumps(arguments)}"


def workspace(stack: Stack, key: str) -> Workspace:
    """The files of a session."""
    return Workspace.for_session(stack.home, key)


async def ask(stack: Stack, key: str, *lines: str, **more: Any) -> TurnResult:
    """Ask with a script; the answer is what `/say` says, or the rehearsal model's own words."""
    return await stack.client.ask(key, "\n".join(lines), timeout=TIMEOUT, **more)


async def results(stack: Stack, key: str) -> list[str]:
    """The texts of a session's newest tool results, in order."""
    page = await stack.client.history(key, limit=200)
    return [message.text for message in page.messages if message.role == "tool"]


def refusal(result: str) -> dict[str, str]:
    """The refusal that a tool result is."""
    told: dict[str, str] = json.loads(result)["error"]
    return told


async def label(stack: Stack, key: str) -> Label:
    """A session's label, as the store has it."""
    return (await stack.client.status(key)).label


async def raises(stack: Stack, key: str) -> list[tuple[str, str, str]]:
    """Every recorded rise of a session's label: from, to, reason."""
    found = await events(stack, key, EventKind.LABEL_RAISED)
    return [(one.payload["before"], one.payload["after"], one.payload["reason"]) for one in found]


async def events(stack: Stack, key: str, kind: EventKind | None = None) -> list[Event]:
    """A session's events so far."""
    page = await stack.client.store.outbox.page(key)
    return [event for event in page if kind in (None, event.kind)]


async def audit(stack: Stack, key: str | None, *hooks: str) -> list[Record]:
    """A session's audit entries, of some hooks or of all."""
    log = AuditLog(stack.client.store.database)
    found = await log.page(limit=10_000, session_key=key)
    return [one for one in found if not hooks or one.hook in hooks]


async def pending(stack: Stack, key: str, count: int = 1) -> list[Approval]:
    """The approvals that a session waits for, once there are `count`, in the order of the calls."""

    async def asked() -> bool:
        return (await stack.client.approvals(session_key=key)).total >= count

    await until(asked)
    found = (await stack.client.approvals(session_key=key)).approvals
    return sorted(found, key=lambda one: (one.turn, one.step, one.call))


async def approval(stack: Stack, approval_id: str) -> Approval:
    """An approval as it stands."""
    return await stack.client.store.approvals.get(approval_id)


async def all_approvals(stack: Stack, key: str) -> list[ApprovalState]:
    """The states of all of a session's approvals, in the order of the calls."""
    found = (await stack.client.approvals(session_key=key, state=None)).approvals
    return [one.state for one in sorted(found, key=lambda one: (one.turn, one.step, one.call))]


def delivered(stack: Stack, channel: str) -> list[str]:
    """The texts that went out through a file channel."""
    file = stack.home / "out" / f"{channel}.jsonl"
    if not file.exists():
        return []
    return [json.loads(line)["text"] for line in file.read_text().splitlines()]


async def stored(stack: Stack, needle: str) -> list[str]:
    """The tables that hold `needle` in any column, and the files outside the workspaces that do."""

    def search(connection: Any) -> list[str]:
        found = []
        # An index without content cannot be read; the tables that it lies in are.
        plain = "type = 'table' and sql not like '%using fts5%'"
        names = connection.execute(text(f"select name from sqlite_master where {plain}"))
        for (table,) in names.all():
            rows = connection.execute(text(f'select * from "{table}"')).all()
            if any(needle in str(value) for row in rows for value in row):
                found.append(table)
        return found

    tables = await stack.client.store.database.read(search)
    files = [path for path in stack.home.rglob("*") if _searched(path, stack.home)]
    return tables + [path.name for path in files if needle in path.read_text(errors="replace")]


def _searched(path: Path, home: Path) -> bool:
    place = path.relative_to(home).parts
    # The database is searched by its tables; a worker's log is its operator's.
    return (
        path.is_file()
        and place[0] != "workspaces"
        and path.suffix != ".log"
        and path.stem != "perdure"
    )


@asynccontextmanager
async def listening(stack: Stack, key: str) -> AsyncIterator[list[str]]:
    """Listen to what a session streams during the block; every piece that was ever shown."""
    heard: list[str] = []
    await stack.client.store.deltas.listen(key, "ear")

    async def listen() -> None:
        cursor = renewed = 0
        while True:
            for delta in await stack.client.store.deltas.after(key, cursor):
                cursor = delta.id
                heard.append(delta.text)
            renewed += 1
            if renewed % 50 == 0:
                await stack.client.store.deltas.listen(key, "ear")
            await asyncio.sleep(0.02)

    task = asyncio.create_task(listen())
    try:
        yield heard
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
