"""What a store promises whatever its engine: each test runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, text

from perdure.audit import AuditFiles
from perdure.domain.errors import InvalidArgument
from perdure.domain.labels import Label
from perdure.domain.states import EventKind
from perdure.domain.steps import OpenSession
from perdure.search import parse
from perdure.store import Database, Store
from perdure.store.audit import AuditTrail, verify
from perdure.store.database import after_commit
from perdure.store.readers import Reader
from perdure.store.session_writer import SessionWriter
from perdure.store.sessions import make_session
from perdure.store.tables import deltas, events
from tests.support.audit_appender import decision
from tests.support.conversations import BEGAN, Conversation
from tests.support.event_writer import tell

KEY = "default:talk"
READER = Reader.gateway(Label.RESTRICTED)


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    opened = await Store.open(store_url)
    await opened.sessions.open(OpenSession(session_key=KEY, agent="main"))
    yield opened
    await opened.close()


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
async def test_events_of_many_processes_are_seen_once_each_in_the_order_of_their_commits(
    store: Store, store_url: str
) -> None:
    count, names = 60, ("one", "two")
    writers = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.support.event_writer", store_url, name, str(count)),
            cwd=Path(__file__).parent.parent,
        )
        for name in names
    ]
    heard: list[tuple[int, str, int | None]] = []
    wanted = len(names) * count
    async with asyncio.timeout(60):
        async for event in store.outbox.follow(None, 0):
            if event.kind is EventKind.TURN_STARTED:
                heard.append((event.id, event.session_key, event.turn))
            if len(heard) == wanted:
                break
    assert [await writer.wait() for writer in writers] == [0, 0]
    ids = [number for number, _, _ in heard]
    assert ids == sorted(set(ids))
    for name in names:
        turns = [turn for _, key, turn in heard if key == f"default:{name}"]
        assert turns == list(range(1, count + 1))
    assert [
        one.id for one in await store.outbox.page() if one.kind is EventKind.TURN_STARTED
    ] == ids


async def test_what_a_transaction_reads_is_what_it_changes(store: Store, store_url: str) -> None:
    """Two stores count on the same row: no count is lost."""
    other = await Store.open(store_url)

    def count(connection: Connection) -> None:
        with SessionWriter(connection, KEY) as session:
            session.change(step_count=session.row.step_count + 1)

    try:
        both = (store.database, other.database)
        await asyncio.gather(*(both[number % 2].write(count) for number in range(60)))
    finally:
        await other.close()
    figures = await store.views.figures(READER, KEY)
    assert figures is not None
    assert figures.row.step_count == 60


async def test_a_read_sees_one_moment(store: Store, store_url: str) -> None:
    other = await Store.open(store_url)
    loop = asyncio.get_running_loop()

    def look(connection: Connection) -> tuple[int, int]:
        query = text("SELECT count(*) FROM events")
        before = connection.scalar(query)
        asyncio.run_coroutine_threadsafe(other.database.write(tell, KEY, 4), loop).result(10)
        return before or 0, connection.scalar(query) or 0

    try:
        before, after = await store.database.read(look)
    finally:
        await other.close()
    assert before == after
    assert len(await store.outbox.page()) == before + 1


async def test_calls_after_a_commit_are_made_in_order_and_none_after_a_rollback(
    store: Store,
) -> None:
    made: list[int] = []

    def work(connection: Connection, number: int, *, fail: bool = False) -> None:
        after_commit(connection, lambda: made.append(number))
        if fail:
            raise InvalidArgument("undone")

    await store.database.write(work, 1)
    with pytest.raises(InvalidArgument):
        await store.database.write(work, 2, fail=True)
    await asyncio.gather(*(store.database.write(work, number) for number in range(3, 9)))
    assert made == [1, *range(3, 9)]


async def test_a_caller_that_is_cancelled_does_not_stop_what_was_begun(store: Store) -> None:
    begun = threading.Event()

    def slow(connection: Connection) -> None:
        begun.set()
        time.sleep(0.2)
        tell(connection, KEY, 7)

    before = await store.outbox.newest_id()
    writing = asyncio.create_task(store.database.write(slow))
    await asyncio.to_thread(begun.wait)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    # The next one waits for it.
    await store.database.write(tell, KEY, 8)
    assert [event.turn for event in await store.outbox.page(after=before)] == [7, 8]


async def test_several_event_loops_share_a_store(store: Store) -> None:
    def elsewhere(number: int) -> int:
        async def work() -> int:
            await store.database.write(tell, KEY, number)
            return await store.outbox.newest_id()

        return asyncio.run(work())

    ids = await asyncio.gather(*(asyncio.to_thread(elsewhere, number) for number in range(4)))
    assert max(ids) == await store.outbox.newest_id()


async def test_text_is_kept_as_it_is_but_for_nul_which_no_engine_keeps(store: Store) -> None:
    talk = await Conversation.open(store, "default:odd")
    said = "a\x00b \x01 \ufffe 👨‍👩‍👧 e\u0301 \t\r\n" + "x" * 3_000
    await talk.say(said, "answer\x00")
    kept = [message.text for message in await talk.messages()]
    assert kept == [said.replace("\x00", "\ufffd"), "answer\ufffd"]
    for query in ("a\ufffdb", "👨‍👩‍👧", "é"):
        assert (await store.search.messages(parse(query), READER)).total == 1, query


async def test_the_trail_stays_whole_with_text_that_no_engine_keeps(
    store: Store, tmp_path: Path
) -> None:
    files = AuditFiles.of(tmp_path)
    trail = await AuditTrail.open(store.database, files)
    entry = decision("me", 1).model_copy(update={"reason": "so\x00", "decided_by": "a\x00b"})
    await store.database.write(trail.append, entry)
    assert (await verify(store.database, files)).valid


async def test_keys_are_in_the_order_of_their_code_points(store: Store) -> None:
    names = ["B", "a", "Z9", "z", "10", "9", "ab", "a.b", "a-b", "a_b", "aB", "Ab"]

    def fill(connection: Connection) -> list[str]:
        for name in names:
            make_session(connection, f"order:{name}", "main")
        query = text("SELECT session_key FROM sessions WHERE tenant = 'order' ORDER BY session_key")
        return list(connection.scalars(query))

    found = await store.database.write(fill)
    assert found == sorted(f"order:{name}" for name in names)


async def test_numbers_beyond_32_bits_and_text_beyond_its_described_length_are_kept(
    store: Store,
) -> None:
    high = 2**31 + 5

    def write(connection: Connection) -> None:
        connection.execute(
            insert(events).values(
                id=high, session_key="k" * 2_000, kind=EventKind.TURN_STARTED, payload={}, at=BEGAN
            )
        )
        connection.execute(
            insert(deltas).values(
                id=high, session_key=KEY, turn=high, step=1, generation=1, text="x"
            )
        )

    await store.database.write(write)
    assert await store.outbox.newest_id() == high
    (event,) = await store.outbox.page(after=high - 1)
    assert len(event.session_key) == 2_000
    assert [one.turn for one in await store.deltas.after(KEY, high - 1)] == [high]


async def test_many_may_open_a_new_store_at_once(
    request: pytest.FixtureRequest, store_url: str, tmp_path: Path
) -> None:
    if store_url.startswith("sqlite"):
        url = f"sqlite:///{tmp_path / 'new' / 'perdure.db'}"
    else:
        url = await request.getfixturevalue("cluster").fresh(migrated=False)
    opened = await asyncio.gather(*(Database.open(url) for _ in range(5)))
    for database in opened:
        await database.close()
