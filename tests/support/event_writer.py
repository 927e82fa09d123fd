"""`python -m tests.support.event_writer URL NAME COUNT`: a process that writes events to a store,
each in a transaction of its own that takes a moment, and says so when it has.
"""

from __future__ import annotations

import asyncio
import sys
import time

from sqlalchemy import Connection

from perdure.domain.states import EventKind
from perdure.domain.steps import OpenSession
from perdure.store import Store
from perdure.store.session_writer import SessionWriter


def tell(connection: Connection, key: str, number: int) -> None:
    """Write one event of a session; its number is the turn's."""
    with SessionWriter(connection, key) as session:
        session.tell(EventKind.TURN_STARTED, turn=number)
    # The id is taken; whoever gets a higher one must not commit before us.
    time.sleep(0.001 * (number % 4))


async def main(url: str, name: str, count: int) -> None:
    store = await Store.open(url)
    key = f"default:{name}"
    await store.sessions.open(OpenSession(session_key=key, agent="main"))
    print("ready", flush=True)
    for number in range(1, count + 1):
        await store.database.write(tell, key, number)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
