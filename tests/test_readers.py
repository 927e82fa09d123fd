"""What the store holds ready for a caller from outside, on either engine: its tenant's, up to its
level, and what it has written to."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Connection, insert, update

from perdure.domain.approvals import ApprovalState
from perdure.domain.errors import NotFound
from perdure.domain.labels import Label
from perdure.search import parse
from perdure.store import Store
from perdure.store.clock import now
from perdure.store.readers import Reader
from perdure.store.session_views import SessionFilter
from perdure.store.sessions import make_session
from perdure.store.tables import approvals, sessions

LOW, HIGH, MINE, FOREIGN = "acme:low", "acme:high", "acme:mine", "globex:low"
CALLER = "key:a1b2c3"
READER = Reader(level=Label.PUBLIC, sees=Label.PUBLIC, tenant="acme", caller=CALLER)


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    store = await Store.open(store_url)
    await store.database.write(_fill)
    await store.session_callers.note(MINE, CALLER)
    await store.session_callers.note(MINE, CALLER)
    yield store
    await store.close()


def _fill(connection: Connection) -> None:
    for key in (LOW, HIGH, MINE, FOREIGN):
        make_session(connection, key, "main")
        connection.execute(
            insert(approvals).values(
                id=f"apr_{key}",
                session_key=key,
                turn=1,
                step=1,
                call=0,
                tool="write",
                arguments="{}",
                digest="",
                asked_by="rule:ask",
                reason="",
                state=ApprovalState.PENDING,
                asked_at=now(),
                expires_at=now().replace(year=now().year + 1),
            )
        )
    risen = sessions.c.session_key.in_([HIGH, MINE])
    connection.execute(update(sessions).where(risen).values(label=Label.CONFIDENTIAL))


async def test_sessions_are_there_of_its_tenant_up_to_its_level_and_of_its_own_doing(
    store: Store,
) -> None:
    rows, total = await store.views.list(READER, SessionFilter())
    assert (sorted(row.session_key for row in rows), total) == ([LOW, MINE], 2)
    for key, there in ((LOW, True), (MINE, True), (HIGH, False), (FOREIGN, False)):
        assert (await store.views.row(READER, key) is not None) == there
        assert (await store.views.figures(READER, key) is not None) == there
        assert (await store.views.history(READER, key, limit=1) is not None) == there
    other = READER.model_copy(update={"caller": "key:other"})
    assert await store.views.row(other, MINE) is None
    assert (await store.views.list(Reader.gateway(Label.PUBLIC), SessionFilter()))[1] == 4


async def test_approvals_are_there_as_far_as_their_calls_may_be_read(store: Store) -> None:
    found = await store.approvals.list(reader=READER)
    assert ([one.session_key for one in found.approvals], found.total) == ([LOW], 1)
    assert (await store.approvals.get(f"apr_{LOW}", READER)).session_key == LOW
    for key in (MINE, HIGH, FOREIGN):
        with pytest.raises(NotFound):
            await store.approvals.get(f"apr_{key}", READER)
    assert (await store.approvals.list(reader=Reader.gateway(Label.PUBLIC))).total == 4


async def test_trees_runs_and_search_hold_nothing_else(store: Store) -> None:
    forest = await store.run_trees.read(None, level=READER.level, reader=READER)
    assert forest.total == 0
    assert (await store.run_trees.read(LOW, reader=READER)).total == 1
    assert (await store.run_trees.read(FOREIGN, reader=READER)).total == 0
    assert (await store.run_trees.read(HIGH, reader=READER)).total == 0
    assert (await store.run_views.below(None, reader=READER)).total == 0
    assert await store.run_views.seen("run_none", READER) is None
    assert await store.run_views.view("run_none", READER) is None
    assert (await store.search.messages(parse("anything"), READER)).total == 0
