"""The demo's checks can fail: a verdict that cannot be bad is worth nothing.

They are tried on a real session of a real stack, then on the same evidence with one thing wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from sqlalchemy import insert

from gateway.demo.checks import examine
from gateway.demo.evidence import Evidence, Kill, Sent, gather
from gateway.demo.verdict import Check
from perdure.domain.states import EventKind, ToolStatus
from perdure.store.clock import now
from perdure.store.tables import messages
from tests.support.stack import Stack, fresh_key

#: What is judged of any session; the rest is about the demo's own.
GENERAL = ("messages", "order", "turns", "model_calls", "tool_effects", "agreement", "no_text")


@pytest.fixture
async def sent(stack: Stack) -> tuple[Sent, ...]:
    """Three messages to a new session, all answered."""
    key = fresh_key("judged")
    ledger = []
    for text in (
        "/say This is an answer that nobody else has given.",
        '/write {"path": "a.txt", "content": "words of the first file"}\n---\n'
        '/edit {"path": "a.txt", "old": "first", "new": "second"}\n/say It is written and edited.',
        "/say And this is the last answer of the three.",
    ):
        result = await stack.client.ask(key, text, timeout=60)
        ledger.append(Sent(session_key=key, message_id=result.message_id, text=text))
    return tuple(ledger)


@pytest.fixture
async def evidence(stack: Stack, sent: tuple[Sent, ...]) -> Evidence:
    """What there is to find out about them."""
    return await gathered(stack, sent)


async def gathered(stack: Stack, sent: tuple[Sent, ...]) -> Evidence:
    return await gather(stack.client, sent=sent, once=("edit",))


def verdict(evidence: Evidence, name: str) -> Check:
    (found,) = [check for check in examine(evidence) if check.name == name]
    return found


async def test_an_honest_session_passes_every_check(evidence: Evidence) -> None:
    for name in GENERAL:
        assert verdict(evidence, name).held, verdict(evidence, name)
    assert verdict(evidence, "messages").figures == {
        "sent": 3,
        "sent_again": 0,
        "answered": 3,
        "lost": 0,
        "doubled": 0,
    }


async def test_a_doubled_answer_in_the_store_is_found(stack: Stack, sent: tuple[Sent, ...]) -> None:
    key = sent[0].session_key
    await stack.client.store.database.write(
        lambda connection: connection.execute(
            insert(messages).values(
                session_key=key,
                seq=1_000,
                id="ans_1_1_again",
                epoch=0,
                turn=1,
                step=1,
                role="assistant",
                text="This is an answer that nobody else has given.",
                tool_calls=[],
                label="PUBLIC",
                tokens=10,
                at=now(),
            )
        )
    )
    found = await gathered(stack, sent)
    assert not verdict(found, "messages").held
    assert verdict(found, "messages").figures["doubled"] == 1
    assert not verdict(found, "model_calls").held


async def test_a_message_that_came_through_twice_under_two_ids_is_found(
    stack: Stack, sent: tuple[Sent, ...]
) -> None:
    await stack.client.ask(sent[0].session_key, sent[0].text, timeout=60)
    found = verdict(await gathered(stack, sent), "messages")
    assert not found.held
    assert found.figures["doubled"] == 1


async def test_a_message_that_nobody_answers_is_found(stack: Stack, sent: tuple[Sent, ...]) -> None:
    silent = Sent(session_key=sent[0].session_key, message_id="msg_lost", text="hello?")
    found = await gathered(stack, (*sent, silent))
    assert not verdict(found, "messages").held
    assert verdict(found, "messages").figures["lost"] == 1


def _restarted(evidence: Evidence) -> Evidence:
    first = next(event for event in evidence.events if event.kind is EventKind.STEP_STARTED)
    last = evidence.events[-1].id
    again = first.model_copy(update={"id": last + 1, "at": datetime.now(UTC)})
    return evidence.model_copy(update={"events": (*evidence.events, again)})


def _miscounted(evidence: Evidence) -> Evidence:
    tokens = {key: counted + 1 for key, counted in evidence.tokens.items()}
    return evidence.model_copy(update={"tokens": tokens})


def _repeated_silently(evidence: Evidence) -> Evidence:
    calls = tuple(
        call.model_copy(update={"claims": 2}) if call.tool == "edit" else call
        for call in evidence.calls
    )
    return evidence.model_copy(update={"calls": calls})


def _posted_twice(evidence: Evidence) -> Evidence:
    return evidence.model_copy(update={"notices": (evidence.calls[0].key,) * 2})


def _never_reported(evidence: Evidence) -> Evidence:
    first, *rest = evidence.calls
    return evidence.model_copy(update={"calls": (first.model_copy(update={"status": None}), *rest)})


def _done_without_effect(evidence: Evidence) -> Evidence:
    first, *rest = evidence.calls
    notice = first.model_copy(update={"tool": "post_notice", "status": ToolStatus.OK})
    return evidence.model_copy(
        update={"calls": (notice, *rest), "once": frozenset({"post_notice"})}
    )


def _swapped(evidence: Evidence) -> Evidence:
    return evidence.model_copy(update={"sent": evidence.sent[::-1]})


def _told_in_the_history(evidence: Evidence) -> Evidence:
    (history, *_) = evidence.histories
    text = json.dumps({"text": "… words of the first file …"}).encode()
    changed = history.model_copy(update={"raw": history.raw + text})
    return evidence.model_copy(update={"histories": (changed,)})


def _blind(evidence: Evidence) -> Evidence:
    history = evidence.histories[0].model_copy(update={"raw": b""})
    return evidence.model_copy(update={"histories": (history,)})


def _one_step_less(evidence: Evidence) -> Evidence:
    return evidence.model_copy(update={"steps": evidence.steps[:-1]})


@pytest.mark.parametrize(
    ("name", "spoil", "figure"),
    [
        ("model_calls", _restarted, "paid_twice"),
        ("model_calls", _restarted, "begun_again_without_cause"),
        ("model_calls", _miscounted, "tokens_miscounted"),
        ("tool_effects", _repeated_silently, "repeated_silently"),
        ("tool_effects", _posted_twice, "effects_doubled"),
        ("tool_effects", _never_reported, "without_report"),
        ("tool_effects", _done_without_effect, "repeated_silently"),
        ("order", _swapped, "out_of_order"),
        ("no_text", _told_in_the_history, "found"),
        ("no_text", _blind, None),
        ("agreement", _one_step_less, None),
    ],
)
async def test_a_broken_promise_is_found(
    evidence: Evidence, name: str, spoil: Callable[[Evidence], Evidence], figure: str | None
) -> None:
    found = verdict(spoil(evidence), name)
    assert not found.held
    assert figure is None or found.figures[figure]


async def test_a_kill_after_which_nothing_goes_on_is_not_a_recovery(evidence: Evidence) -> None:
    end = datetime.now(UTC)
    kill = Kill(what="the worker", began=end, ended=end, session_keys=())
    found = verdict(evidence.model_copy(update={"kills": (kill,)}), "recovery")
    assert not found.held
    assert found.figures["seconds_until_anyone_was_served"] is None
