"""The store as one object: a database and the repositories over it."""

from __future__ import annotations

from perdure.store.claims import Claims
from perdure.store.database import Database
from perdure.store.deliveries import Deliveries
from perdure.store.deltas import Deltas
from perdure.store.mailbox import Mailbox
from perdure.store.outbox import Outbox
from perdure.store.sessions import Sessions
from perdure.store.tails import Tails
from perdure.store.transcript import Transcript
from perdure.store.turns import Turns


class Store:
    """Everything a session must not lose. Open it with `Store.open`, close it when done."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.sessions = Sessions(database)
        self.mailbox = Mailbox(database)
        self.turns = Turns(database)
        self.claims = Claims(database)
        self.deliveries = Deliveries(database)
        self.transcript = Transcript(database)
        self.tails = Tails(database)
        self.outbox = Outbox(database)
        self.deltas = Deltas(database)

    @classmethod
    async def open(cls, url: str) -> Store:
        """The store at a database URL, its schema up to date."""
        return cls(await Database.open(url))

    async def close(self) -> None:
        """Stop tailing and release every connection."""
        await self.outbox.close()
        await self.database.close()
