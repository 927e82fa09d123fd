"""What is PostgreSQL's own: a server that goes away, locks that others hold, how many connect.

Invariant of the tests: the server that is stopped is the test's own.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator

import asyncpg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, insert, text
from sqlalchemy.exc import DBAPIError

from perdure.domain.errors import InvalidArgument, Unavailable
from perdure.domain.labels import Label
from perdure.domain.steps import OpenSession
from perdure.search import parse
from perdure.store import Database, Store, postgres, search_tsvector
from perdure.store.dialect import parse_url, place
from perdure.store.readers import Reader
from perdure.store.search import Found, search_messages
from perdure.store.tables import mailbox
from tests.support.conversations import BEGAN, Conversation
from tests.support.event_writer import tell
from tests.support.postgres import Cluster, missing, running_cluster

KEY = "default:talk"
READER = Reader.gateway(Label.RESTRICTED)


@pytest.fixture
async def url(cluster: Cluster) -> AsyncIterator[str]:
    url = await cluster.fresh()
    yield url
    await cluster.drop(url)


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    opened = await Store.open(url)
    await opened.sessions.open(OpenSession(session_key=KEY, agent="main"))
    yield opened
    await opened.close()


async def test_a_server_that_comes_back_has_lost_nothing_and_is_heard_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres, "PAUSES", (0.05, 0.2))
    if why := missing():
        pytest.skip(why)
    with running_cluster() as cluster:
        store = await Store.open(await cluster.fresh())
        heard: list[int | None] = []

        async def listen() -> None:
            async for event in store.outbox.follow(KEY, 0):
                heard.append(event.turn)

        await store.sessions.open(OpenSession(session_key=KEY, agent="main"))
        listening = asyncio.create_task(listen())
        try:
            await store.database.write(tell, KEY, 1)
            await _until(heard, 1)
            await asyncio.to_thread(cluster.restart)
            # Written elsewhere, while the listener may still believe in its connection.
            await store.database.write(tell, KEY, 2)
            await _until(heard, 2)
            await store.database.write(tell, KEY, 3)
            await _until(heard, 3)
            assert [turn for turn in heard if turn] == [1, 2, 3]
            await asyncio.to_thread(cluster.stop)
            with pytest.raises(Unavailable, match="does not answer"):
                await store.database.read(_events)
        finally:
            listening.cancel()
            await asyncio.wait({listening})
            await store.close()


async def _until(heard: list[int | None], turn: int) -> None:
    async with asyncio.timeout(30):
        while turn not in heard:  # noqa: ASYNC110 (what another process says)
            await asyncio.sleep(0.02)


def _events(connection: Connection) -> int:
    return connection.scalar(text("SELECT count(*) FROM events")) or 0


async def test_a_transaction_that_was_cut_off_is_run_again_once_it_is_sure_to_be_undone(
    store: Store,
) -> None:
    before = await store.database.read(_events)
    runs = 0

    def cut_off(connection: Connection) -> None:
        nonlocal runs
        runs += 1
        tell(connection, KEY, 4)
        if runs == 1:
            connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

    await store.database.write(cut_off)
    assert runs == 2
    assert await store.database.read(_events) == before + 1


async def test_a_commit_that_was_cut_off_is_told_and_never_repeated(
    store: Store, cluster: Cluster
) -> None:
    runs = 0
    loop = asyncio.get_running_loop()

    def cut_off(connection: Connection) -> None:
        nonlocal runs
        runs += 1
        tell(connection, KEY, 4)
        pid = connection.scalar(text("SELECT pg_backend_pid()"))
        killing = cluster.run(f"SELECT pg_terminate_backend({pid})")
        asyncio.run_coroutine_threadsafe(killing, loop).result(10)

    with pytest.raises(Unavailable, match="perhaps taken place"):
        await store.database.write(cut_off)
    assert runs == 1
    await store.database.write(tell, KEY, 5)


async def test_who_waits_too_long_for_the_lock_is_told(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "BUSY_TIMEOUT", 0.2)
    store = await Store.open(url)
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():
            await other.execute(postgres._LOCK)
            with pytest.raises(Unavailable, match="lock timeout"):
                await store.sessions.open(OpenSession(session_key=KEY, agent="main"))
            # Who reads waits for nobody.
            assert await store.database.read(_events) == 0
        await store.sessions.open(OpenSession(session_key=KEY, agent="main"))
    finally:
        await other.close()
        await store.close()


async def test_a_process_that_stands_still_in_a_transaction_does_not_hold_up_the_others(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "IDLE_TIMEOUT", 0.3)
    frozen = await Database.open(url)
    store = await Store.open(url)
    begun, released = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def stand_still(connection: Connection) -> None:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(released.wait(), loop).result(30)
        connection.execute(text("SELECT 1"))

    standing = asyncio.create_task(frozen.write(stand_still))
    try:
        await begun.wait()
        await store.sessions.open(OpenSession(session_key=KEY, agent="main"))
        assert not standing.done()
    finally:
        released.set()
        # It was undone, and is run again.
        await standing
        await frozen.close()
        await store.close()


async def test_a_process_has_no_more_connections_than_it_may(url: str) -> None:
    store = await Store.open(url, readers=2)
    try:
        await store.sessions.open(OpenSession(session_key=KEY, agent="main"))
        following = asyncio.create_task(anext(store.outbox.follow(KEY, 0)))
        await following
        work = [store.database.read(_connected) for _ in range(20)]
        await asyncio.gather(*work, *(store.database.write(tell, KEY, n) for n in range(5)))
        # Two that read, one that writes, one that listens.
        assert await store.database.read(_connected) <= 4
    finally:
        await store.close()


def _connected(connection: Connection) -> int:
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    return connection.scalar(text(query)) or 0


async def test_what_is_wrong_with_a_url_is_told_without_its_password(cluster: Cluster) -> None:
    for url in (
        "postgresql://me:hunter2@/",
        "postgresql+psycopg2://me:hunter2@localhost/x",
        "postgresql://me:hunter2@localhost:port/x",
    ):
        with pytest.raises(InvalidArgument) as wrong:
            parse_url(url)
        assert "hunter2" not in str(wrong.value)
    assert place(parse_url("postgresql+asyncpg://me:hunter2@h:5/x?password=hunter2")) == (
        "postgresql://h:5/x"
    )
    missing_database = cluster.url("none").replace("postgres@", "postgres:hunter2@")
    for url in (
        missing_database,
        "postgresql://me:hunter2@127.0.0.1:1/x",
        f"{missing_database}&sslmode=nonsense",
        f"{missing_database}&sslmode=verify-full&sslrootcert=/nowhere",
    ):
        with pytest.raises(Unavailable, match="cannot be opened") as gone:
            await Database.open(url)
        assert "hunter2" not in str(gone.value)
        assert "hunter2" not in str(gone.value.__cause__)


_ROW = insert(mailbox).values(
    session_key=KEY, message_id="m", text="a secret", sender_id="me", label="PUBLIC", at=BEGAN
)


async def test_no_error_tells_what_a_row_holds(store: Store) -> None:
    def fail(connection: Connection) -> None:
        connection.execute(_ROW.values(sender_kind=None))

    with pytest.raises(DBAPIError) as failed:
        await store.database.write(fail)
    told = "".join(traceback.format_exception(failed.value))
    assert "not-null" in told
    assert "secret" not in told


# Search -----------------------------------------------------------------------------------------


_PIECES = st.sampled_from(
    ["ferry", "Ferry-boat", "fer", "erry", "é", "東京", "京", "👍", "a.b", "C++", "it's", "run(x)"]
)
_TEXTS = st.lists(_PIECES, min_size=1, max_size=8).map(" ".join) | st.text(max_size=20)
_QUERIES = st.lists(
    _PIECES
    | _PIECES.map(lambda piece: f"{piece}*")
    | _PIECES.map(lambda piece: f"-{piece}")
    | st.lists(_PIECES, min_size=2, max_size=3).map(lambda many: f'"{" ".join(many)}"')
    | st.sampled_from(["AND", "OR", "NOT", "(", ")", "un", "%", "_", "\\", "'"]),
    min_size=1,
    max_size=5,
).map(" ".join)


@pytest.fixture(scope="module")
def both(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    urls = [
        f"sqlite:///{tmp_path_factory.mktemp('both') / 'perdure.db'}",
        asyncio.run(cluster.fresh()),
    ]
    stores = [asyncio.run(Store.open(url)) for url in urls]
    yield stores
    for store in stores:
        asyncio.run(store.close())


class _UndoneError(Exception):
    """Nothing is left of a transaction."""


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    said=st.lists(st.tuples(st.sampled_from(["a", "b"]), _TEXTS), min_size=1, max_size=8),
    queries=st.lists(_QUERIES, min_size=1, max_size=6),
)
def test_both_engines_give_the_same_answers(
    both: list[Store], said: list[tuple[str, str]], queries: list[str]
) -> None:
    def answers(connection: Connection) -> list[Found]:
        from tests.test_search import add

        for name, line in said:
            add(connection, f"default:{name}", line)
        found = [
            search_messages(connection, parse(query), READER, session_key=within, limit=4)
            for query in queries
            for within in (None, "default:a")
        ]
        return [_timeless(one) for one in found]

    async def undone(store: Store) -> list[Found]:
        found: list[Found] = []

        def run(connection: Connection) -> None:
            found.extend(answers(connection))
            raise _UndoneError

        with pytest.raises(_UndoneError):
            await store.database.write(run)
        return found

    on_sqlite, on_postgresql = [asyncio.run(undone(store)) for store in both]
    assert on_postgresql == on_sqlite


def _timeless(found: Found) -> Found:
    hits = tuple(hit.model_copy(update={"at": BEGAN}) for hit in found.hits)
    return found.model_copy(update={"hits": hits})


async def test_a_phrase_is_found_in_a_text_with_more_places_than_are_counted(store: Store) -> None:
    talk = await Conversation.open(store, "default:long")
    filler = " ".join(f"w{number}" for number in range(search_tsvector._LAST_PLACE + 50))
    often = "again and " * (search_tsvector._PLACES + 20)
    await talk.say(f"{filler} the silver key", f"{often} the golden key")
    for query, total in (
        ('"silver key"', 1),
        ('"golden key"', 1),
        ('"the key"', 0),
        ("w16400", 1),
        ('"again golden"', 0),
    ):
        assert (await store.search.messages(parse(query), READER)).total == total, query


async def test_a_text_of_more_words_than_an_index_takes_is_kept(store: Store) -> None:
    talk = await Conversation.open(store, "default:huge")
    await talk.say(" ".join(f"word{number}" for number in range(300_000)), "fine")
    assert (await store.search.messages(parse("word77"), READER)).total == 1
