"""Sessions that send to each other, in three modes: each message once, each wait with an end.

Each test goes through `SessionClient`, a real Temporal server and a real worker. What the worker
loses when it dies is in `test_exchange_crashes.py`, who may know what in `test_exchange_labels.py`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from perdure.domain.errors import LimitExceeded, NotFound
from perdure.domain.exchanges import Answered, EndedBy, ExchangeStatus, Mode, Settled, Unanswered
from perdure.domain.states import EventKind, SessionState, TurnState
from tests.support import watching
from tests.support.exchanging import (
    CONFIG,
    TIMEOUT,
    dropped,
    ended,
    error,
    hears,
    result,
    send,
    session,
    sessions,
    start,
    told_by,
)
from tests.support.stack import Stack, fresh_key, running_stack, until


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("exchanges")
    config = CONFIG + "[limits]\nmessage_bytes = 20000\ninbox_per_sender = 3\n"
    async with running_stack(home, temporal_address, config=config) as running:
        yield running


async def test_fire_and_forget_is_one_message_marked_with_its_sender(stack: Stack) -> None:
    """The sender's result has nothing but `sent` and the id, and comes while the target is busy."""
    a, b = await sessions(stack, "a", "b")
    busy = await start(stack, b, "/sleep 600", "/say never")
    sent = await result(stack, a, send(b, "/say hello back"))
    assert sent == {"sent": True, "message_id": sent["message_id"]}
    assert await told_by(stack, b, a) == []

    await stack.client.interrupt(b)
    await ended(stack, b, busy)
    (told,) = await hears(stack, b, a)
    assert (told.id, told.text) == (sent["message_id"], "/say hello back")
    turn = await ended(stack, b, told.id)
    assert (turn.state, turn.text) == (TurnState.COMPLETED, "hello back")
    assert await told_by(stack, a, b) == []


async def test_a_wait_has_the_answer_and_what_it_took(stack: Stack) -> None:
    a, b = await sessions(stack, "a", "b")
    replied = await result(stack, a, send(b, "/ls {}\n/say hello back", mode="wait"))
    (told,) = await told_by(stack, b, a)
    turn = await ended(stack, b, told.id)
    assert set(replied) == {"sent", "status", "response", "stats"}
    assert (replied["sent"], replied["status"]) == (True, "replied")
    assert replied["response"] == turn.text == "hello back"
    assert replied["stats"]["tokens"] == turn.usage.input_tokens + turn.usage.output_tokens
    assert replied["stats"]["cost"] == 0.0
    assert replied["stats"]["runtime_ms"] > 0
    assert (await stack.client.status(a)).state is SessionState.IDLE


async def interrupted(stack: Stack, key: str) -> bool:
    """Whether a turn was under way, and is stopped now."""
    return await stack.client.interrupt(key) is not None


async def test_a_session_that_waits_shows_it(stack: Stack) -> None:
    a, b = await sessions(stack, "a", "b")
    asked = await start(stack, a, send(b, "/sleep 600\n/say never", mode="wait"), "/say {{1}}")
    assert (await stack.client.status(a)).state is SessionState.WAITING
    await until(lambda: interrupted(stack, b))
    answer = await ended(stack, a, asked)
    assert '"status":"failed"' in answer.text
    assert "[interrupted]" in answer.text


async def test_a_slow_answer_comes_late_once(stack: Stack) -> None:
    a, b = await sessions(stack, "a", "b")
    call = send(b, "/sleep 1.2\n/say /say so late", mode="wait", timeout_ms=500)
    gave_up = await result(stack, a, call)
    assert gave_up == {
        "sent": True,
        "status": "delivered_no_reply",
        "message_id": gave_up["message_id"],
    }
    (late,) = await hears(stack, a, b)
    assert late.text == f"[Late answer to your message {gave_up['message_id']}]\n/say so late"
    assert (await ended(stack, a, late.id)).text == "so late"
    # Nothing comes after it.
    await stack.client.ask(b, "/say rest", timeout=TIMEOUT)
    await stack.client.ask(a, "/say rest", timeout=TIMEOUT)
    assert len(await told_by(stack, a, b)) == 1


async def test_a_message_that_was_not_begun_in_time_is_withdrawn(stack: Stack) -> None:
    a, b = await sessions(stack, "a", "b")
    busy = await start(stack, b, "/sleep 600", "/say never")
    withdrawn = await result(stack, a, send(b, "/say never", mode="wait", timeout_ms=300))
    assert withdrawn == {
        "sent": True,
        "status": "withdrawn",
        "message_id": withdrawn["message_id"],
    }
    assert (await stack.client.status(b)).pending == 0
    await stack.client.interrupt(b)
    await ended(stack, b, busy)
    assert (await stack.client.ask(b, "/say on", timeout=TIMEOUT)).text == "on"
    assert await told_by(stack, b, a) == []
    assert await dropped(stack, b) == [(withdrawn["message_id"], "withdrawn")]
    assert [step.attempts for step in await watching.step_rows(stack, b)] == [1, 1, 1]


async def test_a_ping_pong_of_two_turns_has_three_executions(stack: Stack) -> None:
    a, b = await sessions(stack, "a", "b")
    call = send(b, "/say /say /say three", mode="ping-pong", max_turns=2)
    settled = await result(stack, a, call)
    assert (settled["status"], settled["response"]) == ("replied", "three")
    assert (settled["turns_completed"], settled["ended_by"]) == (2, "max_turns")
    assert [(line["from_session"], line["text"]) for line in settled["transcript"]] == [
        (a, "/say /say /say three"),
        (b, "/say /say three"),
        (a, "/say three"),
        (b, "three"),
    ]
    asked = await told_by(stack, b, a)
    (aside,) = await told_by(stack, a, b)
    turns = [await ended(stack, b, one.id) for one in asked]
    turns.append(await ended(stack, a, aside.id))
    assert len(turns) == 3
    used = sum(turn.usage.input_tokens + turn.usage.output_tokens for turn in turns)
    assert settled["stats"]["tokens"] == used
    # Both transcripts keep it under one exchange.
    exchanges = {
        row.exchange
        for key in (a, b)
        for row in await watching.message_rows(stack, key)
        if row.exchange
    }
    assert len(exchanges) == 1


async def test_the_marker_ends_an_exchange_and_is_stripped(stack: Stack) -> None:
    a, b = await sessions(stack, "a", "b")
    call = send(b, "/say done ANNOUNCE_SKIP", mode="ping-pong", max_turns=5)
    settled = await result(stack, a, call)
    assert (settled["response"], settled["turns_completed"]) == ("done", 0)
    assert settled["ended_by"] == "target"
    assert settled["transcript"][-1]["text"] == "done"
    assert len(await told_by(stack, b, a)) == 1
    assert await told_by(stack, a, b) == []


async def test_either_side_ends_an_exchange_by_its_tool(stack: Stack) -> None:
    a, b = await sessions(stack, "a", "b")
    call = send(b, "/end_exchange {}\n/say bye", mode="ping-pong", max_turns=5)
    settled = await result(stack, a, call)
    assert (settled["response"], settled["turns_completed"]) == ("bye", 0)
    assert settled["ended_by"] == "target"

    settled = await result(
        stack, a, send(b, "/say /end_exchange {}", mode="ping-pong", max_turns=5)
    )
    assert settled["response"] == "/end_exchange {}"
    assert (settled["turns_completed"], settled["ended_by"]) == (1, "sender")
    refused = await error(stack, a, "/end_exchange {}")
    assert refused["code"] == "conflict"


async def test_no_further_turn_is_a_wait_with_a_transcript(stack: Stack) -> None:
    a, b = await sessions(stack, "a", "b")
    settled = await result(stack, a, send(b, "/say one", mode="ping-pong", max_turns=0))
    assert (settled["response"], settled["turns_completed"]) == ("one", 0)
    assert len(settled["transcript"]) == 2


async def test_a_turn_aside_sees_the_conversation_and_offers_no_further_waits(
    stack: Stack,
) -> None:
    a, b = await sessions(stack, "a", "b")
    inner = send(b, "x", mode="wait").replace("\\", "\\\\")
    settled = await result(stack, a, send(b, f"/say {inner}", mode="ping-pong", max_turns=1))
    assert "There is no tool named 'sessions_send'" in settled["transcript"][-1]["text"]
    # The main transcript goes on as if nothing had been said beside it.
    assert (await stack.client.ask(a, "/ls {}\n/say ok", timeout=TIMEOUT)).text == "ok"


async def test_the_time_of_an_exchange_is_shared_by_its_turns(stack: Stack) -> None:
    a, b = await sessions(stack, "a", "b")
    slow = "/say /say /sleep 600\n/say never"
    call = send(b, slow, mode="ping-pong", max_turns=3, timeout_ms=1_500)
    settled = await result(stack, a, call)
    assert (settled["status"], settled["ended_by"]) == ("replied", "timeout")
    assert (settled["response"], settled["turns_completed"]) == ("/say /sleep 600", 1)
    # What is still to be answered comes late.
    await stack.client.interrupt(b)
    assert "[interrupted]" in (await hears(stack, a, b, 2))[-1].text


async def test_to_oneself_only_without_waiting(stack: Stack) -> None:
    a = await session(stack, "self")
    for mode in ("wait", "ping-pong"):
        refused = await error(stack, a, send(a, "/say never", mode=mode))
        assert refused["code"] == "deadlock"
        assert refused["message"].endswith(f"{a} → {a}.")
    assert await told_by(stack, a, a) == []
    assert (await stack.client.status(a)).pending == 0
    sent = await result(stack, a, send(a, "/say to myself"))
    (told,) = await hears(stack, a, a)
    assert told.id == sent["message_id"]
    assert (await ended(stack, a, told.id)).text == "to myself"


async def test_a_closed_session_is_opened_by_a_message(stack: Stack) -> None:
    a, b = await sessions(stack, "a", "b")
    await stack.client.close(b)
    replied = await result(stack, a, send(b, "/say open", mode="wait"))
    assert replied["response"] == "open"
    opened = await watching.events(stack, b, EventKind.SESSION_OPENED)
    assert [event.payload["reopened"] for event in opened] == [False, True]


async def test_who_waits_for_a_session_that_begins_anew_is_told_at_once(stack: Stack) -> None:
    a, b = await sessions(stack, "a", "b")
    await start(stack, b, "/sleep 600", "/say never")
    asked = await start(stack, a, send(b, "/say never", mode="wait"), "/say {{1}}")
    await until(lambda: waits(stack, b))
    await stack.client.reset(b)
    assert '"status":"refused"' in (await ended(stack, a, asked)).text
    assert await told_by(stack, b, a) == []


async def waits(stack: Stack, key: str) -> bool:
    return (await stack.client.status(key)).pending == 1


async def test_an_interrupted_wait_takes_back_what_was_not_begun(stack: Stack) -> None:
    a, b = await sessions(stack, "a", "b")
    busy = await start(stack, b, "/sleep 600", "/say never")
    asked = await start(stack, a, send(b, "/say never", mode="wait"), "/say never")
    await stack.client.interrupt(a)
    assert (await ended(stack, a, asked)).state is TurnState.INTERRUPTED
    await stack.client.interrupt(b)
    await ended(stack, b, busy)
    await stack.client.ask(b, "/say on", timeout=TIMEOUT)
    assert await told_by(stack, b, a) == []


async def test_what_an_interrupted_wait_was_owed_comes_late(stack: Stack) -> None:
    a, b = await sessions(stack, "a", "b")
    asked = await start(stack, a, send(b, "/sleep 1\n/say /say late", mode="wait"), "/say never")
    await until(lambda: heard(stack, b, a))
    await stack.client.interrupt(a)
    assert (await ended(stack, a, asked)).state is TurnState.INTERRUPTED
    (late,) = await hears(stack, a, b)
    assert (await ended(stack, a, late.id)).text == "late"


async def heard(stack: Stack, key: str, sender: str) -> bool:
    return bool(await told_by(stack, key, sender))


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("", "is empty"),
        ("nocolon", "does not begin with tenant:user"),
        ("default:a\nb", "not escaped"),
        ("default:" + "x" * 10_000, "the limit is 512"),
        ("default:a~thread", "without a value"),
    ],
)
async def test_a_key_that_is_none_is_refused_with_the_reason(
    stack: Stack, key: str, why: str
) -> None:
    a = await session(stack, "keys")
    refused = await error(stack, a, send(key, "hello"))
    assert refused["code"] == "invalid_argument"
    assert why in refused["message"]


async def test_a_key_of_numbers_is_a_key(stack: Stack) -> None:
    a = await session(stack, "keys")
    refused = await error(stack, a, send("default:678314278~peer~678314278", "hello"))
    assert refused["code"] == "not_found"
    await stack.client.ask("default:678314278~peer~678314278", "/say here", timeout=TIMEOUT)
    replied = await result(
        stack, a, send("default:678314278~peer~678314278", "/say hello", mode="wait")
    )
    assert replied["response"] == "hello"


@pytest.mark.parametrize(
    ("more", "code", "word"),
    [
        ({"text": ""}, "invalid_argument", "text"),
        ({"text": " \n"}, "invalid_argument", "empty"),
        ({"text": "x", "mode": "shout"}, "invalid_argument", "mode"),
        ({"text": "x", "timeout_ms": 86_400_001}, "invalid_argument", "timeout_ms"),
        ({"text": "x", "max_turns": 6}, "invalid_argument", "max_turns"),
        ({"text": "x", "from": "default:b"}, "invalid_argument", "from"),
    ],
)
async def test_what_cannot_be_sent_is_refused_and_nothing_is_delivered(
    stack: Stack, more: dict[str, object], code: str, word: str
) -> None:
    a, b = await sessions(stack, "a", "b")
    refused = await error(stack, a, send(b, **{"text": "", **more}))  # type: ignore[arg-type]
    assert refused["code"] == code
    assert word in refused["message"]
    assert (await stack.client.status(b)).pending == 0


async def test_a_message_that_is_too_large_is_refused(stack: Stack) -> None:
    a, b = await sessions(stack, "a", "b")
    write = json.dumps({"path": "long", "content": "x" * 15_000})
    call = send(b, "{{2.content}}{{2.content}}")
    await stack.client.ask(
        a, f'/write {write}\n---\n/read {{"path": "long"}}\n---\n{call}', timeout=TIMEOUT
    )
    refused = (await watching.results(stack, a))[-1]
    assert watching.code_of(refused) == "limit_exceeded"
    assert "limits.message_bytes is 20000" in refused
    assert (await stack.client.status(b)).pending == 0


async def test_a_sender_that_floods_is_told_and_nothing_is_lost(stack: Stack) -> None:
    a, b, c = await sessions(stack, "a", "b", "c")
    busy = await start(stack, b, "/sleep 600", "/say never")
    calls = [send(b, f"/say {number}") for number in range(5)]
    await stack.client.ask(a, "\n---\n".join(calls) + "\n/say done", timeout=TIMEOUT)
    results = await watching.results(stack, a)
    assert ['"sent":true' in text for text in results] == [True] * 3 + [False] * 2
    assert watching.code_of(results[-1]) == "limit_exceeded"
    assert "limits.inbox_per_sender is 3" in results[-1]
    # Others have their own room.
    assert (await result(stack, c, send(b, "/say c")))["sent"]
    await stack.client.interrupt(b)
    await ended(stack, b, busy)
    assert [one.text for one in await hears(stack, b, a, 3)] == ["/say 0", "/say 1", "/say 2"]
    assert len(await hears(stack, b, c)) == 1


# A person in the name of a session ----------------------------------------------------------


async def test_a_person_lets_one_session_tell_another(stack: Stack) -> None:
    a, b = await sessions(stack, "a", "b")
    sent = await stack.client.tell(a, b, "/say thanks")
    (told,) = await hears(stack, b, a)
    assert told.id == sent.message_id  # type: ignore[union-attr]

    replied = await stack.client.tell(a, b, "/say well", mode=Mode.WAIT)
    assert isinstance(replied, Answered)
    assert (replied.status, replied.response) == (ExchangeStatus.REPLIED, "well")
    assert await told_by(stack, a, b) == []

    settled = await stack.client.tell(
        a, b, "/say /say /say three", mode=Mode.PING_PONG, max_turns=2
    )
    assert isinstance(settled, Settled)
    assert (settled.response, settled.turns_completed) == ("three", 2)
    assert settled.ended_by is EndedBy.MAX_TURNS
    ending = "/end_exchange {}\n/say bye"
    settled = await stack.client.tell(a, b, ending, mode=Mode.PING_PONG)
    assert isinstance(settled, Settled)
    assert (settled.response, settled.turns_completed) == ("bye", 0)


async def test_what_a_person_had_told_is_taken_back_when_it_was_not_begun(stack: Stack) -> None:
    a, b = await sessions(stack, "a", "b")
    busy = await start(stack, b, "/sleep 600", "/say never")
    gone = await stack.client.tell(a, b, "/say never", mode=Mode.WAIT, timeout=0.3)
    assert isinstance(gone, Unanswered)
    assert gone.status is ExchangeStatus.WITHDRAWN
    await stack.client.interrupt(b)
    await ended(stack, b, busy)
    await stack.client.ask(b, "/say on", timeout=TIMEOUT)
    assert await told_by(stack, b, a) == []
    assert await dropped(stack, b) == [(gone.message_id, "withdrawn")]


async def test_a_person_tells_in_no_name_that_is_none(stack: Stack) -> None:
    a = await session(stack, "a")
    for one, other in ((a, fresh_key("none")), (fresh_key("none"), a)):
        with pytest.raises(NotFound):
            await stack.client.tell(one, other, "/say never")
    with pytest.raises(LimitExceeded):
        await stack.client.tell(a, a, "x" * 20_001)
