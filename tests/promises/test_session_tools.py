"""Sessions find, read and search each other, as far as labels and tenants let them.

What is hidden is not there: not in a list, a total, a score or the words of a refusal.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from perdure.domain.labels import Label
from perdure.domain.states import TurnState
from perdure.domain.steps import Lane
from perdure.tools import BUILTIN
from tests.support import model_stack, watching
from tests.support.openai_server import OpenAIServer, Reply, calls, fails, says
from tests.support.stack import Stack, fresh_key, running_stack

CONFIG = f"""
[agents.main]
tools = ["sessions"]

[agents.reader]
model = "{model_stack.PRICED}"
tools = ["sessions"]
"""
TIMEOUT = 60
#: Longer than what is its own summary.
LONG = "The zeppelin of the third fleet landed. " + "It was a windy day on the field. " * 20


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, fake_provider: OpenAIServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    async with running_stack(
        tmp_path_factory.mktemp("sessions"),
        temporal_address,
        config=CONFIG,
        environ=model_stack.environ(fake_provider),
    ) as running:
        yield running


async def say(stack: Stack, key: str, text: str, label: Label = Label.PUBLIC) -> None:
    result = await stack.client.ask(key, text, label=label, timeout=TIMEOUT)
    assert result.state is TurnState.COMPLETED


async def call(
    stack: Stack, key: str, tool: str, label: Label = Label.PUBLIC, **arguments: Any
) -> dict[str, Any]:
    """What the session of this key reads when it makes one call."""
    directive = f"/{tool} {json.dumps(arguments, ensure_ascii=False)}"
    await say(stack, key, f"{directive}\n/say done", label)
    found: dict[str, Any] = json.loads((await watching.results(stack, key))[-1])
    return found


async def test_the_shapes_are_those_of_the_contract(stack: Stack) -> None:
    target, caller = fresh_key("target"), fresh_key("caller")
    await say(stack, target, "/say the gondola is ready")

    listed = await call(stack, caller, "sessions_list")
    assert list(listed) == ["sessions", "total"]
    mine, other, *_ = listed["sessions"]
    assert (mine["session_key"], other["session_key"]) == (caller, target)
    assert list(other) == [
        *("session_key", "agent", "kind", "channel", "user", "state", "label", "message_count"),
        *("last_activity", "created_at"),
    ]
    assert other["message_count"] == 2

    status = await call(stack, caller, "session_status", session_key=target)
    assert list(status) == [
        *("session_key", "agent", "model", "kind", "state", "label", "clearance", "channel"),
        *("user", "turns", "steps", "tokens", "cost", "started_at", "duration_ms", "children"),
        "pending",
    ]

    page = await call(stack, caller, "sessions_history", session_key=target, limit=1)
    assert list(page) == ["session_key", "messages", "total", "has_more"]
    (message,) = page["messages"]
    assert list(message) == [
        *("id", "seq", "role", "text", "tool_calls", "from_session", "label", "at")
    ]
    assert (message["text"], page["total"], page["has_more"]) == ("the gondola is ready", 2, True)
    older = await call(stack, caller, "sessions_history", session_key=target, offset=1)
    assert [one["role"] for one in older["messages"]] == ["user"]

    found = await call(stack, caller, "session_search", query="gondola", scope="assistant")
    assert list(found)[:3] == ["mode", "results", "total"]
    (hit,) = found["results"]
    assert list(hit) == [
        *("session_key", "message_id", "role", "snippet", "score", "at", "summary")
    ]
    assert (found["mode"], found["total"], hit["session_key"]) == ("search", 1, target)
    assert hit["summary"] == "the gondola is ready"

    recent = await call(stack, caller, "session_search", limit=1)
    assert (recent["mode"], len(recent["sessions"])) == ("recent", 1)
    assert recent["total"] >= 2


async def test_a_hidden_session_and_an_unknown_one_are_the_same_answer(stack: Stack) -> None:
    high, low = fresh_key("high"), fresh_key("low")
    foreign = fresh_key("foreign").replace("default:", "elsewhere:")
    await say(stack, high, "/say an iguana", Label.CONFIDENTIAL)
    await say(stack, foreign, "/say an iguana")
    found = await call(stack, low, "session_search", query="iguana")
    assert (found["total"], found["results"]) == (0, [])
    for tool in ("session_status", "sessions_history"):
        answers = [
            await call(stack, low, tool, session_key=key)
            for key in (high, foreign, fresh_key("unknown"), "no key at all")
        ]
        assert [answer["error"]["code"] for answer in answers] == ["not_found"] * 4
        assert len({json.dumps(answer) for answer in answers}) == 1
    listed = await call(stack, low, "sessions_list")
    assert not {high, foreign} & {one["session_key"] for one in listed["sessions"]}

    seen = await call(stack, fresh_key("peer"), "sessions_list", Label.CONFIDENTIAL)
    assert high in {one["session_key"] for one in seen["sessions"]}
    assert seen["total"] > listed["total"]


async def test_words_above_the_reader_are_withheld_where_the_session_is_seen(stack: Stack) -> None:
    target, caller = fresh_key("was-high"), fresh_key("caller")
    await say(stack, target, "the ocelot speaks", Label.CONFIDENTIAL)
    await stack.client.reset(target)
    await say(stack, target, "/say nothing to hide")
    page = await call(stack, caller, "sessions_history", session_key=target)
    assert "ocelot" not in json.dumps(page)
    assert page["messages"][0]["text"] == "[withheld: this message is CONFIDENTIAL]"
    assert page["messages"][-1]["text"] == "nothing to hide"
    found = await call(stack, caller, "session_search", query="ocelot")
    assert target not in {one["session_key"] for one in found["results"]}


async def test_numbers_out_of_range_are_clamped_or_refused(stack: Stack) -> None:
    key = fresh_key("numbers")
    await say(stack, key, "/say one walrus\n")
    for limit in (-5, 0, 31, 10**30):
        answer = await call(stack, key, "session_search", query="walrus", limit=limit)
        assert 1 <= len(answer["results"]) <= 30
    for arguments in (
        {"session_key": key, "limit": 0},
        {"session_key": key, "limit": 201},
        {"session_key": key, "offset": -1},
        {"session_key": key, "level": "RESTRICTED"},
        {},
    ):
        refused = await call(stack, key, "sessions_history", **arguments)
        assert refused["error"]["code"] == "invalid_argument"
    refused = await call(stack, key, "session_search", query="x" * 3_000)
    assert refused["error"]["code"] == "invalid_argument"


@pytest.mark.parametrize("query", ['"unclosed', "(", "*", "NOT", "C++", "東京", "👍"])
async def test_whatever_a_model_types_finds_the_message_that_holds_it(
    stack: Stack, query: str
) -> None:
    key = fresh_key("typed")
    await say(stack, key, f"/say I wrote {query} here")
    found = await call(stack, key, "session_search", query=query, limit=30, scope="assistant")
    assert key in {one["session_key"] for one in found["results"]}


async def test_a_search_does_not_find_the_question_it_answers(stack: Stack) -> None:
    key = fresh_key("question")
    await say(stack, key, "the quokka sleeps")
    found = await call(stack, key, "session_search", query="quokka sleeps", scope="user")
    assert [one["snippet"] for one in found["results"]] == ["the quokka sleeps"]
    # The question of an earlier turn is a message like any other.
    found = await call(stack, key, "session_search", query="quokka sleeps", scope="user")
    assert found["total"] == 2


def test_reads_are_short_and_a_search_that_may_ask_a_model_is_not() -> None:
    lanes = {name: BUILTIN[name].lane for name in ("sessions_list", "sessions_history")}
    assert set(lanes.values()) == {Lane.LOCAL}
    assert BUILTIN["session_search"].lane is Lane.ACTIVITY


# Summaries -----------------------------------------------------------------------------------


async def search(stack: Stack, provider: OpenAIServer, key: str, *replies: Reply) -> dict[str, Any]:
    """A turn of the agent `reader` that searches for the zeppelin and gets these replies to its
    questions for a summary."""
    arguments = '{"query": "zeppelin fleet", "scope": "user"}'
    provider.script(calls(("call-1", "session_search", arguments)), *replies, says("done"))
    result = await stack.client.ask(key, "go", agent="reader", timeout=TIMEOUT)
    assert (result.state, result.text) == (TurnState.COMPLETED, "done")
    found: dict[str, Any] = json.loads((await watching.results(stack, key))[-1])
    return found


async def test_summaries_are_made_once_kept_and_paid_for(
    stack: Stack, provider: OpenAIServer
) -> None:
    await say(stack, fresh_key("told"), LONG)
    key = fresh_key("searching")
    found = await search(stack, provider, key, says("A zeppelin landed."))
    assert [one["summary"] for one in found["results"]] == ["A zeppelin landed."]
    assert found["failed_summaries"] == 0
    asked = provider.requests[1].messages
    assert LONG.strip() in asked[-1]["content"]
    assert "obey nothing" in asked[0]["content"]
    # A step with the call, the summary, and the step that says done.
    assert (await stack.client.status(key)).tokens.total == 3 * 18

    again = await search(stack, provider, key)
    assert [one["summary"] for one in again["results"]] == ["A zeppelin landed."]
    assert len(provider.requests) == 5


async def test_a_summary_that_fails_is_told_and_the_search_goes_on(
    stack: Stack, provider: OpenAIServer
) -> None:
    await say(stack, fresh_key("told"), LONG + " Another fleet.")
    key = fresh_key("failing")
    await stack.client.ask(key, "hello", agent="reader", label=Label.INTERNAL, timeout=TIMEOUT)
    found = await search(stack, provider, key, fails(401), fails(401))
    assert found["failed_summaries"] == len(found["results"]) == found["total"]
    assert {one["summary"] for one in found["results"]} == {None}
