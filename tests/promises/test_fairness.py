"""A session that one sender floods still answers the others, and each sender in its own order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.domain.envelopes import Envelope, Sender, SenderKind
from tests.support import watching
from tests.support.exchanging import CONFIG, TIMEOUT, ended, hears, result, send, sessions, start
from tests.support.stack import Stack, running_stack
from workflows.inbox import Inbox
from workflows.state import SessionState

SENDERS = ("a", "b", "c", "d")


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("fairness")
    async with running_stack(home, temporal_address, config=CONFIG) as running:
        yield running


def envelope(sender: str, number: int, **more: bool) -> Envelope:
    kind = SenderKind.USER if sender == "a" else SenderKind.SESSION
    return Envelope(message_id=f"{sender}{number}", sender=Sender(kind=kind, id=sender), **more)


def inbox() -> Inbox:
    return Inbox(SessionState(session_key="default:me", agent="main"))


@given(st.lists(st.sampled_from(SENDERS), max_size=40), st.integers(0, 40))
def test_senders_are_served_in_turn_and_each_in_its_order(came: list[str], carried: int) -> None:
    """Also when the workflow is replaced in between, with its state."""
    box = inbox()
    waiting: dict[str, list[str]] = defaultdict(list)
    for number, sender in enumerate(came):
        box.admit(envelope(sender, number))
        waiting[sender].append(f"{sender}{number}")
    passed: dict[str, set[str]] = {sender: set() for sender in waiting}
    for number in range(len(came)):
        if number == carried:
            state = SessionState.model_validate_json(box._state.model_dump_json())
            box = Inbox(state)
        taken = box.take().message_id
        sender = taken[0]
        assert waiting[sender].pop(0) == taken
        passed[sender] = set()
        for other in passed:
            if other != sender and waiting[other]:
                # Nobody is served twice while another waits.
                assert sender not in passed[other]
                passed[other].add(sender)
    assert not len(box)
    assert not box._state.ring


@given(st.lists(st.sampled_from(SENDERS), max_size=60))
def test_whoever_comes_anew_waits_for_one_message_of_each_of_the_others(came: list[str]) -> None:
    """One that is answered at once and sends again does not go before the one that waits."""
    box = inbox()
    for number in range(30):
        box.admit(envelope("flood", number))
    since = 0
    for number, sender in enumerate(came):
        box.admit(envelope(sender, number))
        since = 0 if box.take().sender.id == "flood" else since + 1
        assert since <= len(SENDERS)


def test_of_one_sender_the_order_is_that_of_coming() -> None:
    box = inbox()
    for number in range(5):
        box.admit(envelope("b", number))
    assert [box.take().message_id for _ in range(5)] == [f"b{number}" for number in range(5)]


def test_what_joins_a_turn_and_what_is_put_first_leave_the_rest_in_order() -> None:
    box = inbox()
    for number, sender in enumerate("bbcd"):
        box.admit(envelope(sender, number, joins=sender == "d"))
    box.remove(box.joining())
    box.put_first(envelope("c", 9))
    assert [box.take().message_id for _ in range(4)] == ["c9", "b0", "c2", "b1"]


async def test_a_flooded_session_answers_another_sender_next(stack: Stack) -> None:
    a, b, c = await sessions(stack, "a", "b", "c")
    busy = await start(stack, b, "/sleep 600", "/say never")
    flood = "\n".join(send(b, f"/say {number}") for number in range(12))
    await stack.client.ask(a, f"{flood}\n/say done", timeout=TIMEOUT)
    assert (await result(stack, c, send(b, "/say for c")))["sent"]
    await stack.client.interrupt(b)
    await ended(stack, b, busy)
    await hears(stack, b, a, 12)

    order = [row.from_session for row in await watching.transcript(stack, b) if row.from_session]
    assert order.index(c) <= 1
    told = [one.text for one in await hears(stack, b, a, 12)]
    assert sorted(told) == sorted(f"/say {number}" for number in range(12))
