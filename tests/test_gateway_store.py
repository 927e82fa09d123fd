"""What gateways keep, on each engine: conversations begun elsewhere, requests that come again,
schedules, and where answers go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from ulid import ULID

from perdure.domain.envelopes import Envelope
from perdure.domain.errors import Code, Conflict, Refusal
from perdure.domain.labels import Label
from perdure.domain.messages import Role
from perdure.domain.replies import ReplyTo
from perdure.domain.schedules import Overlap, ScheduleKind
from perdure.domain.states import TurnState
from perdure.domain.steps import OpenSession, TurnEnd
from perdure.store import Store
from perdure.store.clock import now
from perdure.store.readers import Reader
from perdure.store.schedules import NewSchedule
from perdure.store.seeding import Earlier

KEY = "default:bob"
EARLIER = (
    Earlier(role=Role.USER, text="My name is Bob."),
    Earlier(role=Role.ASSISTANT, text="Hello Bob."),
)


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    opened = await Store.open(store_url)
    yield opened
    await opened.close()


async def test_what_was_said_before_stands_before_the_first_message_once(store: Store) -> None:
    first = Envelope(message_id="m1")
    for _ in range(2):
        await store.seeding.post(KEY, "main", first, "next", EARLIER)
    page = await store.transcript.page(KEY, 10, 0)
    assert [(one.id, one.role, one.text) for one in page.messages] == [
        ("seed_1", "user", "My name is Bob."),
        ("seed_2", "assistant", "Hello Bob."),
    ]
    # A session that has begun is not begun again.
    await store.seeding.post(KEY, "main", Envelope(message_id="m2"), "more", EARLIER)
    assert (await store.transcript.page(KEY, 10, 0)).total == 2
    assert await store.mailbox.count(KEY) == 2
    with pytest.raises(Conflict):
        await store.seeding.post(KEY, "main", first, "another text", EARLIER)


async def test_a_request_is_found_by_its_digest_for_a_while(store: Store) -> None:
    hour = now() - timedelta(hours=1)
    old = f"oai_d_{ULID.from_datetime(now() - timedelta(hours=2))}"
    await store.mailbox.post(KEY, Envelope(message_id=old), "x")
    assert await store.repeats.message(KEY, "oai_d_", hour) is None
    newer = f"oai_d_{ULID()}"
    await store.mailbox.post(KEY, Envelope(message_id=newer), "x")
    await store.mailbox.post(KEY, Envelope(message_id=f"oai_dd_{ULID()}"), "x")
    assert await store.repeats.message(KEY, "oai_d_", hour) == newer
    assert await store.repeats.message("default:eve", "oai_d_", hour) is None
    made = f"default:openai~thread~d-{ULID()}"
    assert await store.repeats.session("default:openai~thread~d-", hour) is None
    await store.mailbox.post(made, Envelope(message_id="m"), "x")
    assert await store.repeats.session("default:openai~thread~d-", hour) == made


async def test_a_schedule_is_there_for_who_sees_its_session(store: Store) -> None:
    def new(name: str, key: str) -> NewSchedule:
        return NewSchedule(
            tenant="default",
            name=name,
            kind=ScheduleKind.MESSAGE,
            session_key=key,
            text="/say x",
            label=Label.PUBLIC,
            every=2.5,
            timezone="UTC",
            overlap=Overlap.SKIP,
            created_by="a test",
        )

    await store.seeding.post(KEY, "main", Envelope(message_id="m1"), "x", EARLIER)
    first = await store.schedules.add(new("b", KEY))
    second = await store.schedules.add(new("a", "default:new"))
    with pytest.raises(Conflict):
        await store.schedules.add(new("a", KEY))
    everybody = Reader.gateway(Label.PUBLIC)
    tenant = Reader(level=Label.PUBLIC, sees=Label.PUBLIC, tenant="default")
    stranger = tenant.model_copy(update={"tenant": "acme"})
    for reader, seen in ((everybody, ["a", "b"]), (tenant, ["a", "b"]), (stranger, [])):
        rows, total = await store.schedules.page(reader, None, 10, 0)
        assert ([row.name for row in rows], total) == (seen, len(seen))
    assert (await store.schedules.page(everybody, None, 1, 1))[0] == [first]
    assert await store.schedules.get(second.number) == second
    await store.schedules.remove(first.number)
    # A number is never used again.
    assert (await store.schedules.add(new("b", KEY))).number > second.number
    assert await store.schedules.waits(KEY, "m")
    assert not await store.schedules.waits(KEY, "sched_")


async def test_an_answer_is_owed_until_it_is_settled(store: Store) -> None:
    envelope = Envelope(message_id="m1", replies=True)
    to = ReplyTo(channel="out", recipient="bob")
    for _ in range(2):
        await store.replies.post(KEY, envelope, "x", to)
    assert await store.replies.owed(KEY, "m1") == to
    opened = await store.sessions.open(OpenSession(session_key=KEY, agent="main"))
    assert opened.pending == (envelope,)
    # Discarded and delivered again, it may lead elsewhere.
    await store.mailbox.withdraw(KEY, "m1")
    other = to.model_copy(update={"recipient": "eve"})
    await store.replies.post(KEY, envelope, "x", other)
    assert await store.replies.owed(KEY, "m1") == other
    assert await store.replies.left_behind(now(), 10) == ()
    end = {"session_key": KEY, "turn": 1, "message_id": "m1", "state": TurnState.INTERRUPTED}
    reason = Refusal(code=Code.UNAVAILABLE, message="stopped")
    await store.turns.end_turn(TurnEnd(**end, reason=reason))
    (left,) = await store.replies.left_behind(now() + timedelta(seconds=1), 10)
    assert (left.message_id, left.channel, left.turn) == ("m1", "out", 1)
    await store.replies.settle(KEY, "m1")
    assert await store.replies.owed(KEY, "m1") is None
    assert await store.replies.left_behind(now() + timedelta(seconds=1), 10) == ()
