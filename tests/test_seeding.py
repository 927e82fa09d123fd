"""Sessions that begin with a conversation held elsewhere, and requests that come again."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from ulid import ULID

from perdure.domain.envelopes import Envelope
from perdure.domain.errors import Conflict
from perdure.domain.messages import Role
from perdure.store import Store
from perdure.store.clock import now
from perdure.store.seeding import Earlier

KEY = "default:bob"
EARLIER = (
    Earlier(role=Role.USER, text="My name is Bob."),
    Earlier(role=Role.ASSISTANT, text="Hello Bob."),
)


async def _opened(tmp_path: Path) -> Store:
    return await Store.open(f"sqlite:///{tmp_path}/perdure.db")


async def test_what_was_said_before_stands_before_the_first_message_once(tmp_path: Path) -> None:
    store = await _opened(tmp_path)
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
    await store.close()


async def test_a_request_is_found_by_its_digest_for_a_while(tmp_path: Path) -> None:
    store = await _opened(tmp_path)
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
    await store.close()
