"""API keys: what is kept of them, what they open, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, inspect, select

from gateway.client import SessionClient
from gateway.gate import REFUSALS, KeyGate, TooOften
from gateway.rates import Rates
from perdure.api_keys import KeyText, new_key, read_key
from perdure.config import Settings, StoreSettings
from perdure.domain.access import Caller, Scope
from perdure.domain.errors import Conflict, Denied, InvalidArgument, NotFound, Unauthenticated
from perdure.domain.labels import Label
from perdure.store import Store
from perdure.store.clock import now
from perdure.store.tables import metadata

HERE = "192.0.2.7"


@asynccontextmanager
async def opened(home: Path, url: str | None = None) -> AsyncIterator[SessionClient]:
    settings = Settings(home=home, store=StoreSettings(url=url))
    store = await Store.open(settings.store_url, settings.audit_files)
    client = SessionClient(settings, None, store)
    yield client
    await client.refusals.settle()
    await store.close()


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[SessionClient]:
    async with opened(tmp_path) as client:
        yield client


@pytest.fixture
async def anywhere(tmp_path: Path, store_url: str) -> AsyncIterator[SessionClient]:
    """A client on one engine after the other."""
    async with opened(tmp_path, store_url) as client:
        yield client


def gate_of(client: SessionClient, local: Caller | None = None) -> KeyGate:
    return KeyGate(client.store, client.refusals, local)


@pytest.fixture
async def gate(client: SessionClient) -> AsyncIterator[KeyGate]:
    gate = gate_of(client)
    yield gate
    gate.close()


async def refused(gate: KeyGate, key: str, address: str = HERE) -> str:
    with pytest.raises(Unauthenticated) as error:
        await gate.admit(key, address)
    return str(error.value)


async def test_a_key_opens_what_it_is_made_for(anywhere: SessionClient) -> None:
    gate = gate_of(anywhere)
    made = await anywhere.keys.create(
        "bot", scopes=[Scope.READ, Scope.CHAT], tenant="acme", clearance=Label.INTERNAL
    )
    caller = await gate.admit(made.text, HERE)
    assert caller == Caller(
        name="bot",
        key_id=made.id,
        tenant="acme",
        scopes=frozenset({Scope.CHAT, Scope.READ}),
        clearance=Label.INTERNAL,
    )
    assert (await anywhere.keys.get(made.id)).last_used is not None
    assert await gate.admit(None, HERE) is None
    await anywhere.keys.create("again", scopes=[Scope.CHAT], request_id="once")
    with pytest.raises(Conflict):
        await anywhere.keys.create("again", scopes=[Scope.CHAT], request_id="once")
    assert [key.name for key in (await anywhere.keys.list(limit=1)).keys] == ["again"]
    await anywhere.keys.revoke(made.id)
    await refused(gate, made.text)
    gate.close()


async def test_nothing_that_is_kept_has_the_secret(client: SessionClient) -> None:
    made = await client.keys.create("bot", scopes=[Scope.CHAT])
    text = read_key(made.text)
    assert text is not None
    kept = await client.store.database.read(_everything)
    assert "$argon2id$" in kept
    assert text.id in kept
    assert text.secret not in kept
    assert text.secret not in repr(text)


def _everything(connection: Connection) -> str:
    """All that the store holds, in words."""
    return "".join(
        str(connection.execute(select(table)).all())
        for table in metadata.sorted_tables
        if inspect(connection).has_table(table.name)
    )


async def test_revoked_or_over_it_is_good_for_nothing_at_once_and_everywhere(
    client: SessionClient, gate: KeyGate
) -> None:
    other = gate_of(client)
    kept = await client.keys.create("kept", scopes=[Scope.CHAT])
    soon = now() + timedelta(seconds=1)
    brief = await client.keys.create("brief", scopes=[Scope.CHAT], expires_at=soon)
    for one in (gate, other):
        await one.admit(kept.text, HERE)
        await one.admit(brief.text, HERE)
    await client.keys.revoke(kept.id)
    await asyncio.sleep((soon - now()).total_seconds())
    for one in (gate, other):
        assert await refused(one, kept.text) == await refused(one, brief.text)
    assert [key.name for key in (await client.keys.list()).keys] == []
    assert (await client.keys.list(every=True)).total == 2
    assert (await client.keys.revoke(kept.id)).revoked_at is not None
    other.close()


async def test_an_unknown_key_and_a_wrong_secret_are_one_answer(
    client: SessionClient, gate: KeyGate
) -> None:
    made = await client.keys.create("bot", scopes=[Scope.CHAT])
    wrong = str(KeyText(made.id, new_key().secret))
    assert await refused(gate, wrong) == await refused(gate, str(new_key()))
    assert await refused(gate, "sk-something-else") == await refused(gate, f"{made.text}x")


async def test_a_key_is_asked_for_only_where_others_could_ask(client: SessionClient) -> None:
    home = gate_of(client, Caller.local(Label.CONFIDENTIAL))
    for sent in (None, "sk-that-a-client-must-send"):
        caller = await home.admit(sent, "127.0.0.1")
        assert caller is not None
        assert caller.overseer
    made = await client.keys.create("bot", scopes=[Scope.CHAT], tenant="acme")
    caller = await home.admit(made.text, "127.0.0.1")
    assert caller is not None
    assert caller.tenant == "acme"
    await refused(home, str(new_key()))
    home.close()


async def test_who_tries_keys_in_vain_is_slowed_down_and_takes_nothing_from_others(
    client: SessionClient, gate: KeyGate
) -> None:
    _, burst = REFUSALS
    good = await client.keys.create("good", scopes=[Scope.CHAT])
    for _ in range(burst):
        await refused(gate, "no key at all")
    with pytest.raises(TooOften) as error:
        await gate.admit(str(new_key()), HERE)
    assert 0 < error.value.seconds <= 6
    assert await gate.admit(good.text, HERE) is not None
    await refused(gate, str(new_key()), "192.0.2.8")


async def test_a_key_may_ask_so_often_and_no_more(client: SessionClient, gate: KeyGate) -> None:
    made = await client.keys.create("slow", scopes=[Scope.CHAT], rate=2)
    other = await client.keys.create("other", scopes=[Scope.CHAT], rate=2)
    for _ in range(2):
        await gate.admit(made.text, HERE)
    with pytest.raises(TooOften) as error:
        await gate.admit(made.text, HERE)
    assert 0 < error.value.seconds <= 30
    assert await gate.admit(other.text, HERE) is not None


async def test_however_many_come_with_a_new_key_at_once_all_are_let_in(
    client: SessionClient, gate: KeyGate
) -> None:
    made = await client.keys.create("herd", scopes=[Scope.CHAT], rate=1_000)
    callers = await asyncio.gather(*(gate.admit(made.text, HERE) for _ in range(200)))
    assert {caller.name for caller in callers if caller} == {"herd"}
    assert None not in callers


def test_a_rate_refills_while_nothing_is_done() -> None:
    clock = [0.0]
    rates = Rates(most=2, clock=lambda: clock[0])
    assert [rates.take("a", 60, 3) for _ in range(4)] == [0, 0, 0, 1.0]
    clock[0] = 1.0
    assert [rates.take("a", 60, 3) for _ in range(2)] == [0, 1.0]
    clock[0] = 100.0
    assert [rates.take("a", 60, 3) for _ in range(4)] == [0, 0, 0, 1.0]
    # Of names beyond those that are remembered, the one that was quiet longest begins anew.
    rates.take("b", 60, 3)
    rates.take("c", 60, 3)
    assert rates.take("a", 60, 3) == 0


async def test_nobody_makes_a_key_that_is_good_for_more_than_they_are(
    client: SessionClient,
) -> None:
    admin = Caller(
        name="boss", tenant="acme", scopes=frozenset({Scope.ADMIN}), clearance=Label.INTERNAL
    )
    keys = client.on_behalf_of(admin).keys
    made = await keys.create("own", scopes=[Scope.CHAT])
    assert (made.tenant, made.clearance) == ("acme", Label.PUBLIC)
    with pytest.raises(Denied, match="tenant"):
        await keys.create("far", scopes=[Scope.CHAT], tenant="globex")
    with pytest.raises(Denied, match="clearance"):
        await keys.create("high", scopes=[Scope.CHAT], clearance=Label.CONFIDENTIAL)
    foreign = await client.keys.create("foreign", scopes=[Scope.CHAT], tenant="globex")
    with pytest.raises(NotFound) as there:
        await keys.revoke(foreign.id)
    with pytest.raises(NotFound) as missing:
        await keys.revoke("0" * 12)
    assert str(there.value).replace(foreign.id, "") == str(missing.value).replace("0" * 12, "")
    assert [key.id for key in (await keys.list()).keys] == [made.id]


async def test_a_request_makes_one_key(client: SessionClient) -> None:
    made = await client.keys.create("bot", scopes=[Scope.CHAT], request_id="r-1")
    with pytest.raises(Conflict, match=made.id):
        await client.keys.create("bot", scopes=[Scope.CHAT], request_id="r-1")
    assert (await client.keys.list()).total == 1


async def test_what_no_key_can_be_is_told(client: SessionClient) -> None:
    impossible: list[dict[str, Any]] = [
        {"name": " "},
        {"name": "a\nb"},
        {"name": "x" * 101},
        {"scopes": []},
        {"tenant": "a:b"},
        {"rate": 0},
        {"expires_at": now()},
    ]
    for wrong in impossible:
        with pytest.raises(InvalidArgument):
            await client.keys.create(**{"name": "bot", "scopes": [Scope.CHAT], **wrong})
    assert (await client.keys.list(every=True)).total == 0
