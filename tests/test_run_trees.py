"""Trees of runs, read from the store: complete, in place, and for those who may see them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from sqlalchemy import Connection, insert, select, update

from perdure.delegation.packet import SpawnPacket
from perdure.domain.labels import Label
from perdure.store import Store
from perdure.store.clock import now
from perdure.store.delegation_tables import runs
from perdure.store.readers import Reader
from perdure.store.run_trees import RunNode
from perdure.store.sessions import make_session
from perdure.store.tables import sessions

KEY = "default:me"


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    store = await Store.open(store_url)
    await store.database.write(make_session, KEY, "main")
    yield store
    await store.close()


def key_of(run_id: str) -> str:
    return f"{KEY}~agent~main~run~{run_id}"


def run(connection: Connection, run_id: str, above: str = "", *, ended: float | None = None) -> str:
    """Add a run below the one whose path is `above`, ended so many minutes ago; its path."""
    parents = above.rstrip("/").split("/") if above else []
    parent = key_of(parents[-1]) if parents else KEY
    make_session(connection, key_of(run_id), "main", parent_key=parent)
    connection.execute(
        insert(runs).values(
            run_id=run_id,
            session_key=key_of(run_id),
            parent_key=parent,
            path=f"{above}{run_id}/",
            depth=len(parents) + 1,
            parent_turn=1,
            parent_step=1,
            parent_call=0,
            epoch=0,
            sync=False,
            agent="main",
            packet=SpawnPacket(
                task="look", parent_key=parent, agent="main", max_depth=3, max_steps=50
            ).model_dump(mode="json"),
            label="PUBLIC",
            cause="a test",
            state="running" if ended is None else "ended",
            end_reason=None if ended is None else "completed",
            queued_at=now(),
            queue_until=now(),
            started_at=now() - timedelta(hours=2),
            ended_at=None if ended is None else now() - timedelta(minutes=ended),
        )
    )
    return f"{above}{run_id}/"


def names(nodes: tuple[RunNode, ...]) -> dict[str, object]:
    return {node.run_id: names(node.runs) for node in nodes}


async def test_the_runs_of_a_session_are_found_however_many_there_are(store: Store) -> None:
    def fill(connection: Connection) -> None:
        run(connection, "run_0", ended=1)
        for table in (sessions, runs):
            (row,) = connection.execute(select(table).where(table.c.session_key == key_of("run_0")))
            copies = [dict(row._mapping) for _ in range(1_100)]
            for number, copy in enumerate(copies, start=1):
                copy["session_key"] = key_of(f"run_{number}")
                if table is runs:
                    copy |= {"run_id": f"run_{number}", "path": f"run_{number}/"}
            connection.execute(insert(table), copies)

    await store.database.write(fill)
    listed = await store.run_views.below(KEY, limit=200, offset=1_000)
    assert (len(listed.runs), listed.total) == (101, 1_101)
    assert await store.run_views.find_below(KEY, "run_1100", Label.PUBLIC) is not None
    forest = await store.run_trees.read(KEY)
    assert (len(forest.sessions[0].runs), forest.cut) == (1_000, True)


async def test_an_old_run_stands_in_the_tree_while_one_below_it_is_recent(store: Store) -> None:
    def fill(connection: Connection) -> None:
        old = run(connection, "run_old", ended=90)
        run(connection, "run_deep", old)
        run(connection, "run_older", old, ended=91)
        run(connection, "run_gone", ended=90)

    await store.database.write(fill)
    forest = await store.run_trees.read(None, recent_minutes=30)
    assert {tree.session_key: names(tree.runs) for tree in forest.sessions} == {
        KEY: {"run_old": {"run_deep": {}}}
    }
    every = await store.run_trees.read(KEY)
    assert names(every.sessions[0].runs) == {
        "run_old": {"run_deep": {}, "run_older": {}},
        "run_gone": {},
    }
    deep = await store.run_trees.read(key_of("run_old"))
    assert list(names(deep.sessions[0].runs)) == ["run_deep", "run_older"]


async def test_a_session_without_runs_is_in_the_forest_while_it_works(store: Store) -> None:
    assert (await store.run_trees.read(None)).sessions == ()

    def begin(connection: Connection) -> None:
        connection.execute(update(sessions).values(state="running"))

    await store.database.write(begin)
    assert [tree.session_key for tree in (await store.run_trees.read(None)).sessions] == [KEY]


async def test_what_is_above_a_level_is_left_out_with_all_below_it(store: Store) -> None:
    def fill(connection: Connection) -> None:
        high = run(connection, "run_high")
        run(connection, "run_below", high)
        run(connection, "run_low")
        connection.execute(
            update(sessions)
            .where(sessions.c.session_key == key_of("run_high"))
            .values(label="CONFIDENTIAL")
        )

    await store.database.write(fill)
    forest = await store.run_trees.read(KEY, level=Label.INTERNAL)
    assert names(forest.sessions[0].runs) == {"run_low": {}}
    assert await store.run_views.seen("run_high", Reader.gateway(Label.INTERNAL)) is None
    assert await store.run_views.seen("run_high", Reader.gateway(Label.CONFIDENTIAL)) is not None
