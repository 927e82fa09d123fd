"""What may come in: sizes, texts, labels, a full inbox. A refusal names the limit and the value,
leaves nothing behind, and harms nobody else; what is accepted is kept byte for byte.

Each test goes through `SessionClient`, a real Temporal server and a real worker.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from perdure.domain.envelopes import Envelope
from perdure.domain.errors import Conflict, Denied, InvalidArgument, LimitExceeded, NotFound
from perdure.domain.labels import Label
from perdure.domain.messages import Role
from perdure.domain.states import EventKind, TurnState
from perdure.store.tables import mailbox
from tests.support import watching
from tests.support.accounting import all_ended, assert_answered_once, said
from tests.support.sending import deliver
from tests.support.stack import Stack, fresh_key, running_stack

TIMEOUT = 60

WaysIn = Callable[[Stack], Callable[..., Awaitable[Any]]]

ways_in = pytest.mark.parametrize(
    "way_in", [lambda stack: stack.client.send, lambda stack: stack.client.ask], ids=["send", "ask"]
)


@pytest.fixture(scope="module")
async def narrow(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    """A stack with room for three waiting messages of a thousand bytes."""
    config = "[limits]\ninbox = 3\nmessage_bytes = 1000\n"
    home = tmp_path_factory.mktemp("narrow")
    async with running_stack(home, temporal_address, config=config) as running:
        yield running


async def assert_nothing_came_in(stack: Stack, key: str) -> None:
    assert await watching.rows(stack, mailbox, key) == []
    with pytest.raises(NotFound):
        await stack.client.status(key)


@ways_in
async def test_ten_megabytes_are_refused_with_the_limit_named(stack: Stack, way_in: WaysIn) -> None:
    key = fresh_key("large")
    with pytest.raises(LimitExceeded, match=r"10000000 bytes; limits.message_bytes is 1000000"):
        await way_in(stack)(key, "x" * 10_000_000)
    await assert_nothing_came_in(stack, key)


async def test_the_command_line_refuses_ten_megabytes_too(stack: Stack) -> None:
    """As HTTP does: see `tests/test_http.py`."""
    key = fresh_key("large-cli")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway.cli", "send", key, "--home", str(stack.home)),
        env=os.environ | stack.environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    told, _ = await process.communicate(b"x" * 10_000_000)
    assert process.returncode != 0
    assert b"limits.message_bytes is 1000000" in b" ".join(told.split())
    await assert_nothing_came_in(stack, key)


@ways_in
@pytest.mark.parametrize("text", ["", " ", "\n\t\r\n", "\u2003\u00a0", "half \ud83d", "\udc00"])
async def test_what_is_no_text_is_refused(stack: Stack, way_in: WaysIn, text: str) -> None:
    key = fresh_key("no-text")
    with pytest.raises(InvalidArgument):
        await way_in(stack)(key, text)
    await assert_nothing_came_in(stack, key)


@pytest.mark.parametrize("message_id", ["", " ", "a b", "ans_1_1", "é", "x" * 129, "a\n"])
async def test_what_is_no_message_id_is_refused(stack: Stack, message_id: str) -> None:
    key = fresh_key("no-id")
    with pytest.raises(InvalidArgument):
        await stack.client.send(key, "hello", message_id=message_id)
    await assert_nothing_came_in(stack, key)


@pytest.mark.parametrize("character", ["x", "é", "𝄞"])
async def test_a_message_of_exactly_the_limit_is_answered(narrow: Stack, character: str) -> None:
    key = fresh_key("limit")
    text = character * (1000 // len(character.encode()))
    assert len(text.encode()) == 1000
    assert (await narrow.client.ask(key, text, timeout=TIMEOUT)).state is TurnState.COMPLETED
    with pytest.raises(LimitExceeded, match=r"1001 bytes; limits.message_bytes is 1000"):
        await narrow.client.send(key, text + "x")
    assert [entry.text for entry in await said(narrow, key) if entry.role == Role.USER] == [text]


async def test_a_megabyte_comes_in_by_default(stack: Stack) -> None:
    key = fresh_key("megabyte")
    text = "0123456789" * 100_000
    assert (await stack.client.ask(key, text, timeout=TIMEOUT)).state is TurnState.COMPLETED
    assert (await said(stack, key))[0].text == text


@pytest.mark.parametrize(
    "text",
    [
        "Zürich, 東京, 👩‍👩‍👧‍👦, 𝄞𐍈",
        "\ufeffmark\u200b\u202e\u2028\u2029",
        "\x01\x1b[31m\x7f\x85",
        "line\r\nline\rline\n\n",
        " kept \t",
        "e\u0301 is not \u00e9",
        "\uffff\ufffe\U0010ffff",
    ],
)
async def test_text_survives_byte_for_byte(stack: Stack, text: str) -> None:
    key = fresh_key("bytes")
    await stack.client.ask(key, text, timeout=TIMEOUT)
    await stack.client.ask(key, f"/say {text.strip()}.", timeout=TIMEOUT)
    transcript = await said(stack, key)
    assert transcript[0].text.encode() == text.encode()
    assert transcript[2].text.encode() == f"/say {text.strip()}.".encode()
    (page,) = (await stack.client.history(key, limit=1, offset=3)).messages
    assert page.text == text


async def test_a_nul_becomes_a_replacement_character_and_is_the_same_message_again(
    stack: Stack,
) -> None:
    """PostgreSQL has no text with a NUL, and what is stored does not depend on the engine."""
    key = fresh_key("nul")
    for _ in range(2):
        await stack.client.ask(key, "a\x00b\x00", timeout=TIMEOUT, message_id="nul")
    assert (await said(stack, key))[0].text == "a\ufffdb\ufffd"
    ticket = await stack.client.send(key, "a\x00b\x00", message_id="nul")
    assert ticket.duplicate


async def test_an_id_names_one_text_for_ever(stack: Stack) -> None:
    """Waiting or taken: the same id with another text is a conflict, and the first text stays."""
    key = fresh_key("conflict")
    await stack.client.send(key, "/sleep 60", message_id="blocker")
    await stack.client.send(key, "/say first", message_id="one")
    with pytest.raises(Conflict, match="one was used for another text"):
        await stack.client.send(key, "/say second", message_id="one")
    await watching.event(stack, key, EventKind.STEP_STARTED)
    await stack.client.interrupt(key)
    assert (await stack.client.wait(key, "one", timeout=TIMEOUT)).text == "first"
    with pytest.raises(Conflict, match="one was used for another text"):
        await stack.client.ask(key, "/say second", message_id="one")
    assert (await stack.client.ask(key, "/say first", message_id="one")).turn == 2


async def test_a_full_inbox_refuses_with_the_limit_and_harms_nobody_else(narrow: Stack) -> None:
    key, other = fresh_key("full"), fresh_key("neighbour")
    await narrow.client.send(key, "/sleep 60", message_id="blocker")
    await watching.event(narrow, key, EventKind.STEP_STARTED)
    waiting = [f"waits-{number}" for number in range(3)]
    for message_id in waiting:
        await narrow.client.send(key, "/say in", message_id=message_id)

    for message_id in ("refused-1", "refused-2"):
        with pytest.raises(LimitExceeded, match=r"3 messages wait .* limits.inbox is 3"):
            await narrow.client.send(key, "/say out", message_id=message_id)
    laid_down = [row.message_id for row in await watching.rows(narrow, mailbox, key)]
    assert sorted(laid_down) == waiting
    # What waits may be announced again, and another session has room of its own.
    assert (await narrow.client.send(key, "/say in", message_id="waits-1")).duplicate
    assert (await narrow.client.ask(other, "/say hello", timeout=TIMEOUT)).text == "hello"

    # Nor does a text stay that an earlier attempt laid down and could not announce.
    await narrow.client.store.mailbox.post(key, Envelope(message_id="late"), "/say late")
    with pytest.raises(LimitExceeded):
        await narrow.client.send(key, "/say late", message_id="late")
    assert not await narrow.client.store.mailbox.holds(key, "late")

    await narrow.client.interrupt(key)
    await all_ended(narrow, key, 4)
    assert (await narrow.client.ask(key, "/say out", message_id="refused-1")).text == "out"
    taken = [entry.id for entry in await said(narrow, key) if entry.role == Role.USER]
    assert taken == ["blocker", *waiting, "refused-1"]


async def test_a_message_above_the_clearance_is_refused(stack: Stack) -> None:
    key = fresh_key("clearance")
    with pytest.raises(Denied, match=r"RESTRICTED .* clearance of agent main, CONFIDENTIAL"):
        await stack.client.send(key, "/say secret", label=Label.RESTRICTED)
    await assert_nothing_came_in(stack, key)


async def test_a_signal_above_the_clearance_does_not_taint_the_session(stack: Stack) -> None:
    """Its sender did not check; the session must, or every later turn would be refused."""
    key = fresh_key("taint")
    assert (await stack.client.ask(key, "/say before", timeout=TIMEOUT)).text == "before"
    secret = Envelope(message_id="secret", label=Label.RESTRICTED)
    await deliver(stack, key, "/say secret", secret)
    after = await stack.client.ask(key, "/say after", timeout=TIMEOUT)
    assert (after.state, after.text, after.label) == (TurnState.COMPLETED, "after", Label.PUBLIC)
    assert (await stack.client.status(key)).label is Label.PUBLIC
    assert "/say secret" not in [entry.text for entry in await said(stack, key)]


async def test_a_label_rises_is_recorded_and_falls_only_by_a_reset(stack: Stack) -> None:
    key = fresh_key("label")
    labels = [Label.PUBLIC, Label.CONFIDENTIAL, Label.INTERNAL, Label.PUBLIC]
    for label in labels:
        await stack.client.ask(key, "/say noted", label=label, timeout=TIMEOUT)

    transcript = await watching.transcript(stack, key)
    assert [entry.label for entry in transcript if entry.role is Role.USER] == labels
    answers = [entry.label for entry in transcript if entry.role is Role.ASSISTANT]
    assert answers == [Label.PUBLIC, *[Label.CONFIDENTIAL] * 3]
    (raised,) = await watching.events(stack, key, EventKind.LABEL_RAISED)
    assert raised.turn == 2
    assert raised.payload == {
        "before": Label.PUBLIC,
        "after": Label.CONFIDENTIAL,
        "reason": "message",
    }
    assert (await stack.client.status(key)).label is Label.CONFIDENTIAL

    await stack.client.close(key)
    reopened = await stack.client.ask(key, "/say still", timeout=TIMEOUT)
    assert reopened.label is Label.CONFIDENTIAL

    await stack.client.reset(key)
    assert (await stack.client.status(key)).label is Label.PUBLIC
    assert (await stack.client.ask(key, "/say new", timeout=TIMEOUT)).label is Label.PUBLIC


async def test_a_label_rises_with_a_message_even_when_its_turn_fails(stack: Stack) -> None:
    key = fresh_key("failing-label")
    failed = await stack.client.ask(
        key, "/fail auth 1\n/say never", label=Label.INTERNAL, timeout=TIMEOUT
    )
    assert (failed.state, failed.label) == (TurnState.FAILED, Label.INTERNAL)
    assert (await stack.client.status(key)).label is Label.INTERNAL


async def test_a_session_belongs_to_its_first_agent(models: Stack) -> None:
    key = fresh_key("agent")
    await models.client.ask(key, "hello", agent="chain", timeout=TIMEOUT)
    with pytest.raises(Conflict, match="belongs to agent chain, not to small"):
        await models.client.send(key, "hello", agent="small")
    assert await models.client.store.mailbox.count(key) == 0


async def test_ten_senders_of_the_same_message_are_all_answered_by_one_turn(stack: Stack) -> None:
    key = fresh_key("same")
    results = await asyncio.gather(
        *(stack.client.ask(key, "/say once", message_id="same", timeout=TIMEOUT) for _ in range(10))
    )
    assert {(result.turn, result.text) for result in results} == {(1, "once")}
    await assert_answered_once(stack, key, ["same"])
