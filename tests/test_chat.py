"""`perdure chat` on a real terminal, with a model that really streams; and from a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from tests.support.openai_server import OpenAIServer, calls, fails, says
from tests.support.stack import Stack, fresh_key, running_stack, until
from tests.support.terminal import Terminal, on_terminal, perdure

ENTER, CTRL_C, CTRL_D, NEW_LINE = "\r", "\x03", "\x04", "\x1b\r"
PROMPT = "›"


@pytest.fixture(scope="module")
async def provider() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        yield server


@pytest.fixture(scope="module")
async def talkative(
    temporal_address: str, provider: OpenAIServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    """A stack whose model streams what the test scripts."""
    async with running_stack(
        tmp_path_factory.mktemp("chat"),
        temporal_address,
        config='[agents.main]\nmodel = "openai-chat:gpt-4o-mini"\n',
        environ={"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test"},
    ) as stack:
        yield stack


def chat(stack: Stack, key: str, *more: str) -> AbstractAsyncContextManager[Terminal]:
    return on_terminal("chat", key, *more, home=stack.home, environ=stack.environ)


async def test_an_answer_is_streamed_and_shown_once(
    talkative: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("stream")
    pieces = [f"word{number} " for number in range(60)]
    provider.script(says(*pieces, pause=0.1))
    async with chat(talkative, key) as terminal:
        await terminal.sees("new · main on openai-chat:gpt-4o-mini")
        terminal.type("hello" + ENTER)
        await terminal.sees("word0")
        # The turn is still under way: what is on the screen has been streamed.
        row = await talkative.client.store.sessions.get(key)
        assert row is not None
        assert row.state == "running"
        await terminal.sees("turn 1 · 1 step · 11 tokens in, 7 out")
        assert terminal.text.count("word59") == 1
        assert terminal.text.count("word0 ") == 1
        await terminal.sees(PROMPT)
        terminal.type(CTRL_D)
        assert await terminal.ends() == 0


async def test_ctrl_c_stops_the_turn_and_not_the_session(
    talkative: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("stop")
    provider.script(says("begun ", *["and on "] * 2_000, pause=0.1), says("still here"))
    async with chat(talkative, key) as terminal:
        await terminal.sees(PROMPT)
        terminal.type("go" + ENTER)
        await terminal.sees("begun")
        terminal.type(CTRL_C)
        await terminal.sees("■ interrupted")
        await terminal.sees(PROMPT)
        terminal.type("are you there?" + ENTER)
        await terminal.sees("still here")
        await terminal.sees(PROMPT)
        terminal.type(CTRL_C)
        assert await terminal.ends() == 130
    page = await talkative.client.history(key)
    assert page.messages[1].text.startswith("begun and on")
    assert page.messages[-1].text == "still here"


async def test_tool_calls_are_shown_as_they_run_with_what_became_of_them(
    talkative: Stack, provider: OpenAIServer
) -> None:
    provider.script(
        calls(("a", "write", '{"path": "x.txt", "content": "hi"}'), text=("Let me see.",)),
        calls(("b", "read", '{"path": "nope"}')),
        says("That is it."),
    )
    async with chat(talkative, fresh_key("tools")) as terminal:
        await terminal.sees(PROMPT)
        terminal.type("look" + ENTER)
        await terminal.sees("Let me see.")
        await terminal.sees("→ write path=x.txt")
        await terminal.sees("✓ write path=x.txt")
        await terminal.sees("✗ read path=nope")
        await terminal.sees("That is it.")
        await terminal.sees("turn 1 · 3 steps")


async def test_a_wait_for_the_provider_is_shown(talkative: Stack, provider: OpenAIServer) -> None:
    provider.script(fails(429, "slow down", retry_after="2"), says("here you are"))
    async with chat(talkative, fresh_key("limit")) as terminal:
        await terminal.sees(PROMPT)
        terminal.type("quick" + ENTER)
        await terminal.sees("slow down · next try in 2 s")
        await terminal.sees("here you are")


async def test_an_answer_that_begins_anew_replaces_what_was_shown(
    talkative: Stack, provider: OpenAIServer
) -> None:
    provider.script(
        says(*["doomed "] * 10, pause=0.1, ending="cut"), says("the real one", pause=0.1)
    )
    async with chat(talkative, fresh_key("anew")) as terminal:
        await terminal.sees(PROMPT)
        terminal.type("try" + ENTER)
        await terminal.sees("doomed")
        await terminal.sees("the real one")
        await terminal.sees("turn 1")
        # Between the two, the screen was cleared from the line on which the first one began.
        void = terminal.output.rpartition("doomed")[2].partition("the real one")[0]
        assert "\x1b[J" in void


async def test_somebody_who_joins_sees_the_turn_that_runs_and_may_stop_it(
    talkative: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("join")
    provider.script(says("the beginning ", pause=0.1, ending="hang"))
    ticket = await talkative.client.send(key, "tell me everything")
    await until(lambda: talkative.client.store.transcript.turn_of(key, ticket.message_id))
    async with chat(talkative, key) as terminal:
        await terminal.sees("tell me everything")
        await terminal.sees("the beginning")
        terminal.type(CTRL_C)
        await terminal.sees("■ interrupted")
        await terminal.sees(PROMPT)


async def test_a_second_ctrl_c_leaves_and_the_turn_goes_on_without_one(
    temporal_address: str, provider: OpenAIServer, tmp_path: Path
) -> None:
    key = fresh_key("leave")
    async with running_stack(tmp_path / "home", temporal_address) as stack:
        ticket = await stack.client.send(key, "/sleep 600")
        await until(lambda: stack.client.store.transcript.turn_of(key, ticket.message_id))
        # Nobody is there to take the interrupt.
        stack.worker.kill()
        async with chat(stack, key) as terminal:
            await terminal.sees("thinking…")
            terminal.type(CTRL_C)
            await terminal.sees("stopping the turn…")
            terminal.type(CTRL_C)
            await terminal.sees("the turn goes on")
            assert await terminal.ends() == 130


async def test_a_turn_that_begins_while_one_types_is_shown_and_the_line_is_kept(
    talkative: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("draft")
    provider.script(says("hello you"), says("hello stranger"), says("done"))
    async with chat(talkative, key) as terminal:
        await terminal.sees(PROMPT)
        terminal.type("hi" + ENTER)
        await terminal.sees("turn 1")
        await terminal.sees(PROMPT)
        terminal.type("half a sen")
        await terminal.sees("half a sen")
        await talkative.client.ask(key, "from elsewhere", timeout=60)
        await terminal.sees("from elsewhere")
        await terminal.sees("hello stranger")
        await terminal.sees("half a sen")
        terminal.type("tence" + ENTER)
        await terminal.sees("done")
    page = await talkative.client.history(key)
    assert page.messages[-2].text == "half a sentence"


async def test_what_is_typed_during_a_turn_comes_to_the_next_line(
    talkative: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("ahead")
    provider.script(says("one ", *["more "] * 20, pause=0.1), says("two"))
    async with chat(talkative, key) as terminal:
        await terminal.sees(PROMPT)
        terminal.type("first" + ENTER)
        await terminal.sees("one")
        terminal.type("second" + ENTER)
        await terminal.sees("turn 1")
        assert "second" not in terminal.text.partition("turn 1")[0]
        await terminal.sees("turn 2")
    page = await talkative.client.history(key)
    assert [m.text for m in page.messages if m.role == "user"] == ["first", "second"]


async def test_lines_are_joined_and_the_chats_own_commands_are_not_sent(stack: Stack) -> None:
    key = fresh_key("commands")
    async with chat(stack, key) as terminal:
        await terminal.sees(PROMPT)
        terminal.type('/ls {"path": "."}' + NEW_LINE + "---\\" + ENTER + "/say two steps" + ENTER)
        await terminal.sees("turn 1 · 2 steps")
        await terminal.sees(PROMPT)
        terminal.type(":status" + ENTER)
        await terminal.sees("1 in 2 steps")
        terminal.type(":history 1" + ENTER)
        await terminal.sees("two steps")
        terminal.type(":nonsense" + ENTER)
        await terminal.sees("there is no :nonsense")
        await terminal.sees(":quit")
        terminal.type(":quit" + ENTER)
        assert await terminal.ends() == 0
    assert (await stack.client.status(key)).turns == 1
    # What people say to their agents is nobody else's business.
    assert (stack.home / "chat_history").stat().st_mode & 0o777 == 0o600


async def test_a_message_that_cannot_be_sent_stays_on_the_line_and_is_sent_once(
    temporal_address: str, tmp_path: Path
) -> None:
    key = fresh_key("unsent")
    async with running_stack(tmp_path / "home", temporal_address) as stack:
        await stack.client.ask(key, "/say ready", timeout=60)
        stack.worker.kill()
        async with chat(stack, key) as terminal:
            await terminal.sees(PROMPT)
            terminal.type("/say at last" + ENTER)
            await terminal.sees("sending…")
            await asyncio.sleep(0.5)
            terminal.type(CTRL_C)
            await terminal.sees("Enter sends it again, once")
            await terminal.sees("/say at last")
            stack.worker.start()
            terminal.type(ENTER)
            await terminal.sees("turn 2")
        page = await stack.client.history(key)
        assert [message.text for message in page.messages][2:] == ["/say at last", "at last"]


async def test_without_a_terminal_each_line_is_a_message_and_only_answers_are_printed(
    stack: Stack,
) -> None:
    key = fresh_key("script")
    home, environ = stack.home, stack.environ
    ran = await perdure("chat", key, home=home, environ=environ, stdin="/say a\n\n/say b\n:quit\n")
    assert ran.code == 0
    assert ran.out.splitlines()[:2] == ["a", "b"]
    assert "5 characters" in ran.out
    lines = await perdure(
        "chat", key, "--json", home=home, environ=environ, stdin="/say c\n/fail auth 1\n"
    )
    answers = [json.loads(line) for line in lines.out.splitlines()]
    assert [answer["turn"] for answer in answers] == [4, 5]
    assert "error" not in answers[0]
    assert answers[1]["error"]["code"] == "denied"
    assert lines.code == 1
