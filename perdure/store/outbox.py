"""The outbox: events by cursor, so that whoever reconnects misses nothing and sees nothing twice.

Invariant: reading only. Events are written by `SessionWriter`, in the transaction of the change
they tell.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator
from datetime import datetime
from functools import cached_property
from typing import Any

from sqlalchemy import Connection, bindparam, func, select

from perdure.domain.messages import Frozen
from perdure.domain.states import EventKind
from perdure.store.database import Database
from perdure.store.tables import events

#: Events read at a time by a tail or a replay.
PAGE = 500


_PAGE_OF_ALL = (
    select(events)
    .where(events.c.id > bindparam("after"))
    .order_by(events.c.id)
    .limit(bindparam("most"))
)
_PAGE_OF_ONE = _PAGE_OF_ALL.where(events.c.session_key == bindparam("key"))


class Event(Frozen):
    """One event of the outbox. `id` is its cursor; `payload` holds ids and numbers, no text."""

    id: int
    session_key: str
    kind: EventKind
    turn: int | None = None
    step: int | None = None
    payload: dict[str, Any]
    at: datetime

    @cached_property
    def as_json(self) -> str:
        """The event as JSON, made once for all who listen."""
        return self.model_dump_json()


class Outbox:
    """Reading and tailing the events. One reader a process serves all its subscribers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        #: By session; those under None hear of every session.
        self._subscribers: dict[str | None, set[asyncio.Queue[Event | Exception]]] = defaultdict(
            set
        )
        self._reader: asyncio.Task[None] | None = None
        self._cursor = 0

    async def newest_id(self, session_key: str | None = None, kind: EventKind | None = None) -> int:
        """The cursor of the newest event, of a session and of a kind; 0 when there is none."""
        return await self._database.read(newest_event, session_key, kind)

    async def page(
        self, session_key: str | None = None, after: int = 0, limit: int = PAGE
    ) -> list[Event]:
        """Up to `limit` events with an id above `after`, oldest first."""
        return await self._database.read(_page, session_key, after, limit)

    async def follow(
        self, session_key: str | None, after: int, *, near: bool = False
    ) -> AsyncGenerator[Event]:
        """Every event of a session, of all for None, with an id above `after`, in order, each
        once, for ever.

        `near` says that `after` is about where the outbox stands, which spares a query.
        """
        live: asyncio.Queue[Event | Exception] = asyncio.Queue()
        self._subscribers[session_key].add(live)
        try:
            cursor = after
            # The reader reads the events of all sessions: it must not begin far back.
            behind = self._read_from(after if near else await self.newest_id())
            if behind > after:
                while page := await self.page(session_key, cursor):
                    for event in page:
                        yield event
                        cursor = event.id
            while True:
                item = await live.get()
                if isinstance(item, Exception):
                    raise item
                if item.id > cursor:
                    yield item
                    cursor = item.id
        finally:
            self._subscribers[session_key].discard(live)
            if not self._subscribers[session_key]:
                del self._subscribers[session_key]
            if not self._subscribers:
                self._stop()

    def _read_from(self, after: int) -> int:
        """Have the reader run; the cursor behind which it serves a new subscriber."""
        if self._reader is None:
            self._cursor = after
            self._reader = asyncio.create_task(self._read(), name="outbox-tail")
        return self._cursor

    def _stop(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None

    async def _read(self) -> None:
        watch = self._database.watch()
        try:
            while True:
                while page := await self.page(after=self._cursor):
                    for event in page:
                        for key in (event.session_key, None):
                            for queue in self._subscribers.get(key, ()):
                                queue.put_nowait(event)
                    self._cursor = page[-1].id
                await watch.changed()
        except Exception as error:
            # Whoever follows must learn of it: a silent tail looks like a silent session.
            self._reader = None
            for queue in [queue for queues in self._subscribers.values() for queue in queues]:
                queue.put_nowait(error)
        finally:
            watch.close()

    async def close(self) -> None:
        """Stop the reader."""
        self._stop()


def newest_event(
    connection: Connection, session_key: str | None = None, kind: EventKind | None = None
) -> int:
    """The id of the newest event, of a session and of a kind; 0 when there is none."""
    query = select(func.max(events.c.id))
    if session_key is not None:
        query = query.where(events.c.session_key == session_key)
    if kind is not None:
        query = query.where(events.c.kind == kind)
    return int(connection.scalar(query) or 0)


def _page(connection: Connection, session_key: str | None, after: int, limit: int) -> list[Event]:
    where = {"after": after, "most": limit}
    if session_key is None:
        rows = connection.execute(_PAGE_OF_ALL, where)
    else:
        rows = connection.execute(_PAGE_OF_ONE, {**where, "key": session_key})
    return [Event.model_validate(dict(row._mapping)) for row in rows]
