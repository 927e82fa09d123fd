"""Deliveries: what leaves is recorded first, and no crash or retry sends it twice in silence."""

from __future__ import annotations

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import Connection, select

from perdure.channels import ChannelSettings, courier
from perdure.channels.courier import Courier, Delivery
from perdure.channels.outcomes import DeliveryFailed, DeliveryRefused
from perdure.domain.errors import Conflict, InvalidArgument
from perdure.domain.labels import Label, can_flow, meet
from perdure.domain.states import DeliveryState
from perdure.domain.steps import OpenSession
from perdure.store import Store
from perdure.store.deliveries import Dispatch
from perdure.store.tables import deliveries
from tests.support.channels import SECRET, channel, no_backoff
from tests.support.outside import HOST, Receiver, http_receiver, mail_server

KEY = "default:bob"


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier, "_backoff", no_backoff)


def url_of(home: Path) -> str:
    return f"sqlite:///{home / 'perdure.db'}"


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    opened = await Store.open(store_url)
    await opened.sessions.open(OpenSession(session_key=KEY, agent="main"))
    yield opened
    await opened.close()


def hook(receiver: Receiver, **table: Any) -> ChannelSettings:
    return channel(f"webhook+http://{HOST}:{receiver.port}/", secret=SECRET, **table)


def courier_of(store: Store, settings: ChannelSettings, home: Path = Path("/nowhere")) -> Courier:
    return Courier(store, {"ops": settings}, home)


async def send(outgoing: Courier, cause: str = "1/1/0", **changes: Any) -> Delivery:
    message: dict[str, Any] = {
        "session_key": KEY,
        "channel": "ops",
        "recipient": "bob",
        "text": "It is done.",
        "label": Label.PUBLIC,
        "cause": cause,
        "turn": 1,
        "step": 1,
    }
    return await outgoing.send(**{**message, **changes})


async def told(store: Store) -> list[str]:
    return [event.kind for event in await store.outbox.page(KEY) if "delivery" in event.kind]


async def ledger(store: Store) -> list[Any]:
    def rows(connection: Connection) -> list[Any]:
        return list(connection.execute(select(deliveries)))

    return await store.database.read(rows)


async def test_a_delivery_is_recorded_before_and_after(store: Store) -> None:
    async with http_receiver() as receiver:
        sent = await send(courier_of(store, hook(receiver)))
    assert (sent.status, sent.channel, sent.recipient, sent.label) == (
        "sent",
        "ops",
        "bob",
        Label.PUBLIC,
    )
    assert receiver.requests[0].headers["idempotency-key"] == sent.delivery_id
    (row,) = await ledger(store)
    assert (row.state, row.attempts, row.text_bytes) == ("confirmed", 1, 11)
    assert "It is done." not in str(row)
    assert await told(store) == ["delivery.begun", "delivery.sent"]


async def test_a_retry_of_what_was_sent_is_answered_from_the_ledger(store: Store) -> None:
    async with http_receiver() as receiver:
        outgoing = courier_of(store, hook(receiver))
        first = await send(outgoing)
        assert [await send(outgoing) for _ in range(3)] == [first] * 3
        other = await send(outgoing, "1/1/1")
    assert len(receiver.requests) == 2
    assert other.delivery_id != first.delivery_id


async def test_what_only_a_carrier_has_taken_is_sent_and_not_confirmed(store: Store) -> None:
    async with mail_server() as server:
        url = f"smtp://{HOST}:{server.port}?from=perdure@example.com"
        outgoing = courier_of(store, channel(url))
        assert (await send(outgoing, recipient="bob@example.org")).status == "sent"
    assert (await ledger(store))[0].state == "sent"


@pytest.mark.parametrize("label", Label)
async def test_what_may_not_flow_is_withheld_and_never_leaves(store: Store, label: Label) -> None:
    pairs = [(level, reader) for level in Label for reader in Label]
    async with http_receiver() as receiver:
        for number, (level, reader) in enumerate(pairs):
            settings = hook(receiver, level=level, recipients={"bob": {"level": reader}})
            before = len(receiver.requests)
            delivery = await send(courier_of(store, settings), f"1/1/{number}", label=label)
            may = can_flow(label, meet(level, reader))
            assert (delivery.status == "sent", delivery.status == "withheld") == (may, not may)
            assert len(receiver.requests) - before == may
            if not may:
                assert f"{label}" in (delivery.reason or "")
                assert f"{meet(level, reader)}" in (delivery.reason or "")


async def test_what_was_withheld_stays_so_at_a_retry(store: Store) -> None:
    async with http_receiver() as receiver:
        low, high = hook(receiver), hook(receiver, level="RESTRICTED")
        first = await send(courier_of(store, low), label=Label.INTERNAL)
        assert await send(courier_of(store, high), label=Label.INTERNAL) == first
    assert receiver.requests == []
    assert await told(store) == ["delivery.withheld"]


async def test_an_unknown_channel_is_one_constant_answer(store: Store) -> None:
    outgoing = courier_of(store, channel("console:"))
    refusals = set()
    for name in ("opz", "", "secret\nchannel", "x" * 10_000):
        with pytest.raises(InvalidArgument) as refused:
            await send(outgoing, channel=name)
        refusals.add(str(refused.value))
    assert refusals == {"There is no such channel. Configured channels: ops."}
    assert await ledger(store) == []


@pytest.mark.parametrize(
    "bad", [{"recipient": ""}, {"recipient": "a\nb"}, {"recipient": "x" * 999}, {"text": " \n"}]
)
async def test_what_is_no_message_is_refused_before_the_ledger(
    store: Store, bad: dict[str, str]
) -> None:
    outgoing = courier_of(store, channel("console:"))
    with pytest.raises(InvalidArgument):
        await send(outgoing, **bad)
    assert await ledger(store) == []


async def test_one_cause_is_one_message(store: Store) -> None:
    async with http_receiver() as receiver:
        outgoing = courier_of(store, hook(receiver))
        await send(outgoing)
        for change in ({"text": "Another."}, {"recipient": "eve"}):
            with pytest.raises(Conflict):
                await send(outgoing, **change)
    assert len(receiver.requests) == 1


async def test_a_certain_failure_may_be_tried_again(store: Store) -> None:
    async with http_receiver("401 No", *["503 Busy"] * courier.ATTEMPTS) as receiver:
        outgoing = courier_of(store, hook(receiver))
        with pytest.raises(DeliveryRefused):
            await send(outgoing)
        with pytest.raises(DeliveryFailed):
            await send(outgoing)
        assert (await ledger(store))[0].state == "failed"
        delivery = await send(outgoing)
    assert delivery.status == "sent"
    assert {got.headers["idempotency-key"] for got in receiver.requests} == {delivery.delivery_id}


async def test_what_may_have_arrived_is_unknown_and_stays_so(store: Store) -> None:
    async with http_receiver("reset") as receiver:
        outgoing = courier_of(store, hook(receiver))
        first = await send(outgoing)
        assert first.status == "unknown"
        assert await send(outgoing) == first
    assert len(receiver.requests) == 1
    assert await told(store) == ["delivery.begun", "delivery.unknown"]


async def test_a_cancelled_delivery_is_of_unknown_outcome(store: Store) -> None:
    async with http_receiver("hang") as receiver:
        outgoing = courier_of(store, hook(receiver))
        sending = asyncio.create_task(send(outgoing))
        await receiver.arrived.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert (await send(outgoing)).status == "unknown"
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once"])
async def test_a_process_killed_between_begin_and_sent(
    store: Store, store_url: str, guarantee: str
) -> None:
    code = """
import asyncio, sys
from pathlib import Path
from perdure.channels import ChannelSettings
from perdure.channels.courier import Courier
from perdure.domain.labels import Label
from perdure.store import Store
async def main():
    store = await Store.open(sys.argv[1])
    channel = ChannelSettings(url=sys.argv[2], secret=sys.argv[3])
    await Courier(store, {"ops": channel}, Path("/nowhere")).send(
        session_key="default:bob", channel="ops", recipient="bob", text="It is done.",
        label=Label.PUBLIC, cause="1/1/0", turn=1, step=1,
    )
asyncio.run(main())
"""
    async with http_receiver("hang") as receiver:
        settings = hook(receiver, delivery=guarantee)
        url = settings.url.get_secret_value()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, store_url, url, SECRET
        )
        await receiver.arrived.wait()
        process.kill()
        await process.wait()
        assert (await ledger(store))[0].state == "begun"

        outgoing = courier_of(store, settings)
        again = [await send(outgoing) for _ in range(2)]
    keys = {got.headers["idempotency-key"] for got in receiver.requests}
    assert keys == {again[0].delivery_id}
    if guarantee == "at-most-once":
        assert [delivery.status for delivery in again] == ["unknown", "unknown"]
        assert len(receiver.requests) == 1
        assert await told(store) == ["delivery.begun", "delivery.unknown"]
    else:
        assert [delivery.status for delivery in again] == ["sent", "sent"]
        assert len(receiver.requests) == 2
        assert await told(store) == ["delivery.begun", "delivery.begun", "delivery.sent"]


async def test_a_failure_after_a_crash_leaves_the_doubt(store: Store) -> None:
    async with http_receiver("400 Bad") as receiver:
        settings = hook(receiver, delivery="at-least-once")
        await store.deliveries.begin(dispatch(), repeat=True)
        assert (await send(courier_of(store, settings))).status == "unknown"
    assert len(receiver.requests) == 1


def dispatch(cause: str = "1/1/0") -> Dispatch:
    return Dispatch(
        session_key=KEY,
        cause=cause,
        channel="ops",
        recipient="bob",
        label=Label.PUBLIC,
        level=Label.PUBLIC,
        text_sha256=hashlib.sha256(b"It is done.").hexdigest(),
        text_bytes=11,
    )


async def test_a_sent_message_is_sent_whatever_a_slower_attempt_reports(store: Store) -> None:
    slow = await store.deliveries.begin(dispatch(), repeat=True)
    fast = await store.deliveries.begin(dispatch(), repeat=True)
    assert (slow.doubtful, fast.doubtful) == (False, True)
    failed = await store.deliveries.settle(dispatch(), slow, DeliveryState.FAILED, "no")
    assert failed.state == "begun"
    await store.deliveries.settle(dispatch(), fast, DeliveryState.SENT)
    for state in (DeliveryState.FAILED, DeliveryState.UNKNOWN):
        assert (await store.deliveries.settle(dispatch(), slow, state)).state == "sent"
    assert (await store.deliveries.of(KEY, "1/1/0")).state == "sent"  # type: ignore[union-attr]


async def test_attempts_at_one_time_send_once_at_most(store: Store) -> None:
    async with http_receiver() as receiver:
        couriers = [courier_of(store, hook(receiver)) for _ in range(8)]
        results = await asyncio.gather(*map(send, couriers))
    assert len(receiver.requests) == 1
    assert {delivery.status for delivery in results} <= {"sent", "unknown"}
    assert (await ledger(store))[0].state == "confirmed"


#: What an attempt may meet: it fails for certain, it dies, it is unsure, it succeeds.
_FATES = st.lists(st.sampled_from(["failed", "died", "unknown", "sent"]), max_size=6)


@settings(deadline=None, max_examples=60)
@given(_FATES, st.booleans())
def test_no_history_of_attempts_sends_twice_in_silence(
    tmp_path_factory: pytest.TempPathFactory, fates: list[str], repeat: bool
) -> None:
    async def run() -> None:
        store = await Store.open(url_of(tmp_path_factory.mktemp("ledger")))
        await store.sessions.open(OpenSession(session_key=KEY, agent="main"))
        may_have_left = False
        ids = set()
        for fate in fates:
            entry = await store.deliveries.begin(dispatch(), repeat=repeat)
            ids.add(entry.delivery_id)
            if entry.state is not DeliveryState.BEGUN:
                assert may_have_left
                continue
            assert repeat or not may_have_left
            assert entry.doubtful == may_have_left
            may_have_left |= fate != "failed"
            if fate == "failed" and entry.doubtful:
                await store.deliveries.settle(dispatch(), entry, DeliveryState.UNKNOWN)
            elif fate != "died":
                await store.deliveries.settle(dispatch(), entry, DeliveryState(fate))
        assert len(ids) <= 1
        await store.close()

    asyncio.run(run())
