"""Intake: what another session may send, and what only people may."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.domain.envelopes import Envelope, Sender, SenderKind
from perdure.domain.errors import Denied
from perdure.domain.labels import Label, can_flow, join
from perdure.domain.steps import SessionReset
from tests.support.stack import Stack, fresh_key, running_stack
from workflows.inbox import Inbox
from workflows.state import SessionState

SESSION = Sender(kind=SenderKind.SESSION, id="default:other")


def inbox(label: Label, intake: Label | None, **more: object) -> Inbox:
    state = SessionState(
        session_key="default:me",
        agent="main",
        label=label,
        clearance=Label.RESTRICTED,
        intake=intake,
        **more,  # type: ignore[arg-type]
    )
    return Inbox(state)


def envelope(label: Label, sender: Sender = SESSION, name: str = "m") -> Envelope:
    return Envelope(message_id=name, sender=sender, label=label)


@pytest.mark.parametrize("intake", [None, *Label])
@pytest.mark.parametrize("label", Label)
@pytest.mark.parametrize("sent", Label)
def test_a_session_takes_from_another_up_to_the_higher_of_its_label_and_its_intake(
    sent: Label, label: Label, intake: Label | None
) -> None:
    box = inbox(label, intake)
    if can_flow(sent, join(label, intake or Label.PUBLIC)):
        box.check(envelope(sent))
    else:
        with pytest.raises(Denied, match=f"A {sent} message of another session"):
            box.check(envelope(sent))
    box.check(envelope(sent, Sender()))


def test_a_session_that_is_to_be_reset_takes_what_a_public_one_does() -> None:
    reset = SessionReset(session_key="default:me", request_id="r")
    box = inbox(Label.CONFIDENTIAL, None, resets=[reset])
    with pytest.raises(Denied):
        box.check(envelope(Label.INTERNAL))


def test_what_came_before_the_session_was_known_is_looked_at_again() -> None:
    state = SessionState(session_key="default:me", agent="main")
    box = Inbox(state)
    low, high, person = (
        envelope(Label.PUBLIC, name="low"),
        envelope(Label.CONFIDENTIAL, name="high"),
        envelope(Label.CONFIDENTIAL, Sender(), name="person"),
    )
    for one in (low, high, person):
        box.check(one)
        box.admit(one)
    state.intake = None
    assert box.take_over([envelope(Label.INTERNAL, name="old")]) == [
        envelope(Label.INTERNAL, name="old"),
        high,
    ]
    assert state.inbox == [low, person]
    assert not box.knows(high)


async def test_a_write_down_is_refused_on_arrival_and_an_intake_lets_it_in(
    temporal_address: str, tmp_path: Path
) -> None:
    config = '[agents.main]\n[agents.open]\nintake = "INTERNAL"\n'
    async with running_stack(tmp_path / "home", temporal_address, config=config) as stack:
        client = stack.client
        closed, open_ = fresh_key("closed"), fresh_key("open")
        await client.ask(closed, "/say hello", timeout=60)
        with pytest.raises(Denied, match="above what this one takes in"):
            await client.send(closed, "/say psst", label=Label.INTERNAL, sender=SESSION)
        assert (await _label(stack, closed)) is Label.PUBLIC
        # A person may tell it, and then a session that is as high may, too.
        await client.ask(closed, "/say hello", label=Label.INTERNAL, timeout=60)
        await client.ask(closed, "/say hi", label=Label.INTERNAL, sender=SESSION, timeout=60)

        await client.ask(open_, "/say hello", agent="open", timeout=60)
        await client.ask(open_, "/say hi", label=Label.INTERNAL, sender=SESSION, timeout=60)
        assert (await _label(stack, open_)) is Label.INTERNAL
        with pytest.raises(Denied):
            await client.send(open_, "/say psst", label=Label.CONFIDENTIAL, sender=SESSION)


async def _label(stack: Stack, key: str) -> Label:
    return (await stack.client.status(key)).label
