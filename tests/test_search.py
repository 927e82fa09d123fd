"""Full-text search over a store: the engine finds what the reference says, for who may read it.

The index is written by the database itself with each message, so every test goes through the
store's own writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, text

from perdure.domain.labels import Label, can_flow
from perdure.domain.messages import Role
from perdure.domain.steps import OpenSession
from perdure.search import LONGEST_QUERY, Mode, matches, parse
from perdure.store import Database, Store, dialect, search, sqlite
from perdure.store.readers import Reader
from perdure.store.search import Found, Lane, search_messages
from perdure.store.search_tables import is_described
from perdure.store.session_writer import SessionWriter
from perdure.store.sessions import make_session
from perdure.store.tables import metadata
from tests.support.conversations import Conversation
from tests.support.postgres import Cluster

READER = Reader.session("default:me", Label.CONFIDENTIAL)

#: Each with a message that holds it, as people would write it.
HANDED = {
    "gateway/run.py": "the traceback ends in gateway/run.py, line 12",
    "don't": "I don’t know",
    '"unclosed': 'he wrote "unclosed and went away',
    "a,b": "split it as a,b please",
    "C++": "rewrite it in C++",
    "38.101": "see TS 38.101-1",
    "NOT": "this is NOT done",
    "(": "an open ( remained",
    "*": "a lone * here",
    "🚀": "shipped 🚀",
    "東京": "明日東京タワーに行く",
    "京": "明日東京タワーに行く",
    "user@host": "ssh user@host",
    "👨‍👩‍👧": "the family 👨‍👩‍👧 emoji",
    "un": "half-done, undone, un",
    "서울": "서울에서 만나요",
}


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    opened = await Store.open(store_url)
    yield opened
    await opened.close()


async def said(store: Store, key: str, *texts: str, label: Label = Label.PUBLIC) -> Conversation:
    """A session in which these messages were sent, and answered in a word."""
    talk = await Conversation.open(store, key)
    for one in texts:
        await talk.say(one, label=label)
    return talk


async def found(store: Store, query: str, reader: Reader = READER, **more: Any) -> Found:
    return await store.search.messages(parse(query), reader, **more)


def texts(answer: Found) -> list[str]:
    return [hit.snippet for hit in answer.hits]


# What is found -------------------------------------------------------------------------------


@pytest.mark.parametrize("query", HANDED)
async def test_whatever_is_typed_finds_the_message_that_holds_it(store: Store, query: str) -> None:
    await said(store, "default:a", *HANDED.values(), "nothing of interest")
    answer = await found(store, query)
    assert HANDED[query] in texts(answer)
    assert answer.complete
    within = await found(store, query, session_key="default:a", role=Role.USER)
    assert HANDED[query] in texts(within)


async def test_operators_mean_what_they_say(store: Store) -> None:
    lines = ["deploy to staging", "deploy to production", "alpha gamma", "beta gamma", "alpha"]
    lines += ["the exact phrase", "the phrase exact", "deployment", "redeploy", "depot"]
    await said(store, "default:a", *lines)

    async def of(query: str) -> set[str]:
        return {line for line in texts(await found(store, query)) if line != "fine"}

    assert await of("deploy AND NOT staging") == {"deploy to production"}
    assert await of("deploy -staging") == {"deploy to production"}
    assert await of('"exact phrase"') == {"the exact phrase"}
    assert await of("(alpha OR beta) gamma") == {"alpha gamma", "beta gamma"}
    assert await of("deplo*") == {"deploy to staging", "deploy to production", "deployment"}
    assert await of("NOT (deplo* OR gamma OR exact)") == {"alpha", "redeploy", "depot"}


async def test_parts_of_words_are_found_where_no_message_has_the_words(store: Store) -> None:
    await said(store, "default:a", "SessionClient and GatewayClient", "on the client side")
    assert (await found(store, "client")).lane is Lane.FTS
    assert texts(await found(store, "client")) == ["on the client side"]
    parts = await found(store, "lient")
    assert (parts.total, parts.lane) == (2, Lane.TRIGRAM)
    assert (await found(store, "onC")).lane is Lane.TRIGRAM
    assert (await found(store, "nt")).lane is Lane.SCAN
    assert (await found(store, "nowhere")).total == 0
    # What has no letters at its ends is the same as a word and as a part.
    assert (await found(store, "京都")).lane is Lane.FTS


async def test_the_oldest_message_is_found_as_surely_as_the_newest(store: Store) -> None:
    filler = [f"needle number {number}" for number in range(30)]
    await said(store, "default:a", "the first needle is golden", *filler)
    assert texts(await found(store, "golden needle")) == ["the first needle is golden"]
    assert (await found(store, "needle", limit=1)).total == 31


async def test_rare_words_and_short_texts_come_first(store: Store) -> None:
    long = "common " + "and so on " * 60
    await said(store, "default:a", long, "common", "common rare", *["common dust"] * 8)
    hits = (await found(store, "rare OR common", limit=30)).hits
    assert hits[0].snippet == "common rare"
    assert hits[-1].snippet.startswith("common and so on")
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(hit.score > 0 for hit in hits)


async def test_a_search_keeps_to_its_session_its_epoch_and_its_speaker(store: Store) -> None:
    talk = await said(store, "default:a", "needle in the first epoch")
    await said(store, "default:b", "needle elsewhere")
    await talk.reset()
    await talk.begin("needle again")
    await talk.call("the needle that a tool found")
    assert (await found(store, "needle")).total == 4
    assert (await found(store, "needle", session_key="default:a")).total == 3
    assert (await found(store, "needle", session_key="default:a", epoch=1)).total == 2
    assert texts(await found(store, "needle", role=Role.TOOL)) == ["the needle that a tool found"]
    assert (await found(store, "needle", session_key="default:unknown")) == Found()
    assert (await found(store, "NOT again", session_key="default:b")).total == 2
    assert (await found(store, "needle", without=("default:a", 2))).total == 2
    assert (await found(store, "needle", without=("default:a", 9))).total == 4


async def test_pages_have_every_match_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where more match than are ranked, and than are counted."""
    monkeypatch.setattr(search, "RANKED", 5)
    monkeypatch.setattr(search, "COUNTED", 12)
    monkeypatch.setattr(search, "VERIFIED", 12)
    await said(store, "default:a", *(f"needle/{number} here" for number in range(40)))
    for query, exact in (("here", True), ("needle/*", False)):
        seen: list[str] = []
        totals: list[tuple[int, bool]] = []
        while (page := await found(store, query, limit=7, offset=len(seen))).hits:
            seen += texts(page)
            totals.append((page.total, page.complete))
            assert page.total >= min(len(seen), 12)
        assert sorted(seen) == sorted({f"needle/{number} here" for number in range(40)}), exact
        assert totals[0] == (12, False)


async def test_a_long_query_is_answered(store: Store) -> None:
    """Whatever fits into the longest query, engines with bounded parsers take."""
    await said(store, "default:a", "x and y")
    half = LONGEST_QUERY // 2
    for query in (
        " OR ".join(["x"] * (LONGEST_QUERY // 5)),
        " ".join(["-z"] * (half // 3)) + " x",
        "(" * half + "x" + ")" * (half - 1),
        "(a OR x -b -" * (half // 12) + "(y)" + ")" * (half // 12),
        '("a b" OR (x "c d" -("b c" "x d" OR -' * (half // 40) + "(y)" + ")" * (half // 10),
        "x*" * half,
        "x/" * half,
        '"' * LONGEST_QUERY,
    ):
        assert len(query) <= LONGEST_QUERY
        await found(store, query)


# The engine and the reference ----------------------------------------------------------------

_ALPHABET = st.sampled_from(
    [*"ab1_-+/.,'\"*()", " ", " ", "\n", "京", "東", "é", "👍", "ß", "ﬁ", "ไ", "\ue000"]
)
_TEXTS = st.lists(_ALPHABET, min_size=1, max_size=12).map("".join)
_WORDS = st.sampled_from(["a", "ab", "b1", "aab", "abba", "京", "東京", "a/b", "b.1", "👍", "baab"])
_PROSE = st.lists(_WORDS, min_size=1, max_size=6).map(" ".join)
_QUERIES = st.one_of(
    _TEXTS,
    st.lists(
        st.one_of(
            _WORDS,
            _WORDS.map(lambda word: f"{word}*"),
            _WORDS.map(lambda word: f"-{word}"),
            _PROSE.map(lambda words: f'"{words}"'),
            st.sampled_from(["AND", "OR", "NOT", "(", ")"]),
        ),
        min_size=1,
        max_size=6,
    ).map(" ".join),
)


class _UndoneError(Exception):
    """Nothing is left of a transaction."""


Undone = Callable[[Callable[[Connection], None]], None]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def undone(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Undone]:
    """Runs a function in a transaction that leaves nothing, for tests that are not asynchronous."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('search') / 'perdure.db'}"
    else:
        cluster: Cluster = request.getfixturevalue("cluster")
        url = asyncio.run(cluster.fresh())
    database = asyncio.run(Database.open(url))

    def run(work: Callable[[Connection], None]) -> None:
        def transaction(connection: Connection) -> None:
            work(connection)
            raise _UndoneError

        with pytest.raises(_UndoneError):
            asyncio.run(database.write(transaction))

    yield run
    asyncio.run(database.close())


def add(connection: Connection, key: str, *lines: str, label: Label = Label.PUBLIC) -> None:
    if connection.scalar(text("SELECT 1 FROM sessions WHERE session_key = :key"), {"key": key}):
        make = False
    else:
        make = True
        make_session(connection, key, "main")
    with SessionWriter(connection, key) as session:
        for number, line in enumerate(lines):
            session.append(
                text=line,
                id=f"{'first' if make else 'more'}_{session.row.next_seq}_{number}",
                turn=1,
                step=0,
                role=Role.USER,
                label=label,
            )
        session.raise_label(label, turn=1, reason="test")


def everything(connection: Connection, query: str, reader: Reader, **more: Any) -> list[Any]:
    """Every hit of every page, without times."""
    hits: list[Any] = []
    while page := search_messages(
        connection, parse(query), reader, limit=4, offset=len(hits), **more
    ).hits:
        hits += [(hit.session_key, hit.message_id, hit.snippet, hit.score) for hit in page]
    return hits


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    lines=st.lists(st.one_of(_TEXTS, _PROSE), min_size=1, max_size=6),
    queries=st.lists(_QUERIES, min_size=1, max_size=8),
)
def test_what_the_engine_finds_is_what_matches(
    undone: Undone, lines: list[str], queries: list[str]
) -> None:
    def run(connection: Connection) -> None:
        add(connection, "default:a", *lines)
        add(connection, "default:b", *reversed(lines))
        for query in queries:
            parsed = parse(query)
            expected: list[str] = []
            for mode in Mode if parsed.wanted else (Mode.WORDS,):
                expected = expected or [one for one in lines if matches(parsed, one, mode)]
            hits = everything(connection, query, READER)
            assert len({hit[:2] for hit in hits}) == len(hits) == 2 * len(expected), query
            within = everything(connection, query, READER, session_key="default:b")
            assert len(within) == len(expected), query

    undone(run)


# Who finds it --------------------------------------------------------------------------------


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    seen=st.lists(_PROSE, min_size=1, max_size=5),
    hidden=st.lists(
        st.tuples(_PROSE, st.sampled_from(Label), st.sampled_from(["default", "other"])),
        min_size=1,
        max_size=5,
    ),
    level=st.sampled_from([Label.PUBLIC, Label.INTERNAL]),
    queries=st.lists(_QUERIES, min_size=1, max_size=4),
)
def test_what_is_hidden_moves_no_total_and_no_score(
    undone: Undone,
    seen: list[str],
    hidden: list[tuple[str, Label, str]],
    level: Label,
    queries: list[str],
) -> None:
    """Neither sessions above the reader, nor another tenant's, nor messages above the reader in a
    session that is below."""
    reader = Reader.session("default:me", level)

    def run(connection: Connection) -> None:
        add(connection, "default:seen", *seen)
        before = [everything(connection, query, reader) for query in queries]
        for number, (line, label, tenant) in enumerate(hidden):
            if tenant == "default" and can_flow(label, level):
                continue
            add(connection, f"{tenant}:hidden{number}", line, label=label)
            if not can_flow(label, level):
                # It was PUBLIC before the session rose, and is hidden with it all the same.
                add(connection, f"{tenant}:hidden{number}", line)
                add(connection, "default:below", line, label=label)
                connection.execute(
                    text("UPDATE sessions SET label = 'PUBLIC' WHERE session_key = :key"),
                    {"key": "default:below"},
                )
        assert [everything(connection, query, reader) for query in queries] == before

    undone(run)


async def test_a_session_that_rises_is_hidden_and_one_that_is_reset_is_seen(store: Store) -> None:
    public = Reader.session("default:me", Label.PUBLIC)
    talk = await said(store, "default:a", "an open needle")
    assert (await found(store, "needle", public)).total == 1
    await talk.begin("a secret needle", label=Label.CONFIDENTIAL)
    await store.database.write(_raise, "default:a")
    assert (await found(store, "needle", public)).total == 0
    assert (await found(store, "needle", public, session_key="default:a")).total == 0
    assert (await found(store, "needle")).total == 2
    # A call beside the one that asks has raised the session itself.
    own = Reader.session("default:a", Label.PUBLIC)
    assert texts(await found(store, "needle", own)) == ["an open needle"]
    assert (await found(store, "needle", own, session_key="default:a")).total == 1
    figures = await store.views.figures(own, "default:a")
    assert figures is not None
    assert figures.row.label is Label.CONFIDENTIAL
    assert await store.views.figures(public, "default:a") is None
    await talk.reset()
    assert texts(await found(store, "needle", public)) == ["an open needle"]


def _raise(connection: Connection, key: str) -> None:
    with SessionWriter(connection, key) as session:
        session.raise_label(Label.CONFIDENTIAL, turn=1, reason="test")


def test_a_small_tenant_finds_its_own_among_many(undone: Undone) -> None:
    """The index itself picks out its documents; what is found is the same."""

    def run(connection: Connection) -> None:
        for number in range(40):
            add(connection, f"big:{number}", "a needle", "a/b needle")
        add(connection, "small:one", "a needle", "b needle", "SmallClient")
        small, big = (Reader.session(f"{name}:me", Label.PUBLIC) for name in ("small", "big"))
        assert dialect.index_of(connection).is_small("small")
        assert not dialect.index_of(connection).is_small("big")
        for query, few, many in (
            ("needle", 2, 80),
            ("a/b", 0, 40),
            ("NOT b", 2, 40),
            ("mallc", 1, 0),
        ):
            assert len(everything(connection, query, small)) == few, query
            assert len(everything(connection, query, big)) == many, query

    undone(run)


async def test_a_gateway_reads_words_up_to_its_level_in_every_session(store: Store) -> None:
    await said(store, "default:a", "an open needle")
    await said(store, "other:b", "a secret needle", label=Label.CONFIDENTIAL)
    assert (await found(store, "needle", Reader.gateway(Label.PUBLIC))).total == 1
    assert (await found(store, "needle", Reader.gateway(Label.CONFIDENTIAL))).total == 2


# The index -----------------------------------------------------------------------------------


def test_the_index_goes_with_the_transaction_of_the_message(undone: Undone) -> None:
    def says(connection: Connection) -> None:
        add(connection, "default:gone", "a vanishing needle")
        assert everything(connection, "vanishing", READER)

    def finds_nothing(connection: Connection) -> None:
        assert not everything(connection, "vanishing", READER)

    undone(says)
    undone(finds_nothing)


async def test_a_database_of_the_first_release_is_indexed_when_it_is_opened(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'perdure.db'}"
    await asyncio.to_thread(_first_release, url)
    store = await Store.open(url)
    try:
        assert texts(await found(store, "gateway/run.py")) == ["see gateway/run.py"]
        assert (await found(store, "東")).total == 1
        assert (await found(store, "ateway")).lane is Lane.TRIGRAM
        assert (await found(store, "secret", Reader.session("default:me", Label.PUBLIC))).total == 0
        await store.sessions.open(OpenSession(session_key="default:old", agent="main"))
        await Conversation(store, "default:old").say("and a new one")
        assert (await found(store, "new")).total == 1
    finally:
        await store.close()


def _first_release(url: str) -> None:
    reading, writing = sqlite.create_engines(dialect.parse_url(url), 1)
    config = Config()
    config.set_main_option("script_location", str(Path(search.__file__).parent / "migrations"))
    with writing.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        with connection.begin():
            for key, label in (("default:old", "PUBLIC"), ("default:high", "CONFIDENTIAL")):
                connection.execute(text(_OLD_SESSION), {"key": key, "label": label})
            for seq, key, line in (
                (1, "default:old", "see gateway/run.py"),
                (2, "default:old", "東京"),
                (3, "default:old", ""),
                (1, "default:high", "a secret"),
            ):
                connection.execute(text(_OLD_MESSAGE), {"key": key, "seq": seq, "text": line})
    reading.dispose()
    writing.dispose()


_OLD_SESSION = """
    INSERT INTO sessions (session_key, tenant, user, kind, agent, state, label, epoch, turn,
      next_seq, message_count, step_count, input_tokens, output_tokens, created_at, last_activity)
    VALUES (:key, 'default', 'me', 'dm', 'main', 'idle', :label, 0, 1, 10, 3, 0, 0, 0,
      '2026-01-01 00:00:00', '2026-01-01 00:00:00')
"""
_OLD_MESSAGE = """
    INSERT INTO messages (session_key, seq, id, epoch, turn, step, role, text, tool_calls, label,
      tokens, at)
    VALUES (:key, :seq, 'old_' || :seq, 0, 1, 0, 'user', :text, '[]', 'PUBLIC', 1,
      '2026-01-01 00:00:00')
"""


async def test_the_schema_is_as_described_and_the_triggers_are_there(store: Store) -> None:
    """A later migration that makes `messages` or `sessions` anew would lose them silently."""
    assert await store.database.read(_differences) == []
    expected = {"search_session_added", "search_session_labelled"}
    expected |= {"search_summary_dropped", "search_summary_labelled"}
    if store.database.url.drivername == "sqlite":
        # On PostgreSQL the store writes these, and is told of events.
        expected |= {"search_message_added", "search_summary_added", "search_word_added"}
    else:
        expected.add("perdure_events_written")
    assert await store.database.read(_triggers) == expected


def _differences(connection: Connection) -> list[str]:
    context = MigrationContext.configure(
        connection, opts={"include_name": is_described, "compare_type": True}
    )
    return [str(one) for one in compare_metadata(context, metadata)]


def _triggers(connection: Connection) -> set[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'trigger'"
    if connection.dialect.name == "postgresql":
        query = "SELECT trigger_name FROM information_schema.triggers"
    return set(connection.scalars(text(query)))
