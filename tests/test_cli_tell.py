"""`perdure tell`, run as people run it: one session says something to another."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

import pytest

from tests.support.exchanging import hears, sessions, start, told_by
from tests.support.stack import Stack, fresh_key
from tests.support.terminal import Ran, perdure

Cli = Callable[..., Awaitable[Ran]]


@pytest.fixture
def tell(stack: Stack) -> Cli:
    """`perdure tell` on the running stack."""

    async def run(*arguments: str) -> Ran:
        return await perdure("tell", *arguments, home=stack.home, environ=stack.environ)

    return run


async def test_a_message_is_told_and_its_id_printed(stack: Stack, tell: Cli) -> None:
    a, b = await sessions(stack, "a", "b")
    ran = await tell(a, b, "/say thanks")
    (told,) = await hears(stack, b, a)
    assert ran == Ran(0, f"{told.id} · sent\n", "")


async def test_a_wait_prints_the_answer(stack: Stack, tell: Cli) -> None:
    a, b = await sessions(stack, "a", "b")
    assert await tell(a, b, "/say well", "--mode", "wait") == Ran(0, "well\n", "")
    ran = await tell(a, b, "/fail auth 1", "--mode", "wait", "--json")
    assert ran.code == 1
    failed = json.loads(ran.out)
    assert failed["status"] == "failed"
    assert failed["response"].startswith("[failed]")


async def test_a_ping_pong_prints_who_said_what(stack: Stack, tell: Cli) -> None:
    a, b = await sessions(stack, "a", "b")
    ran = await tell(a, b, "/say /say two", "--mode", "ping-pong", "--max-turns", "1")
    assert ran.code == 0
    assert ran.out == f"{a}:\n/say /say two\n{b}:\n/say two\n{a}:\ntwo\n"
    assert "1 further turn, ended by max_turns" in ran.err


async def test_what_was_not_begun_in_time_is_taken_back(stack: Stack, tell: Cli) -> None:
    a, b = await sessions(stack, "a", "b")
    await start(stack, b, "/sleep 600", "/say never")
    ran = await tell(a, b, "/say never", "--mode", "wait", "--timeout", "0.3")
    assert (ran.code, ran.out) == (124, "")
    assert "was taken back" in ran.err
    await stack.client.interrupt(b)
    assert await told_by(stack, b, a) == []


async def test_who_is_not_there_neither_speaks_nor_hears(stack: Stack, tell: Cli) -> None:
    a, _ = await sessions(stack, "a", "b")
    for one, other in ((fresh_key("none"), a), (a, fresh_key("none"))):
        ran = await tell(one, other, "/say never", "--json")
        assert ran.code == 3
        assert json.loads(ran.out)["error"]["code"] == "not_found"
