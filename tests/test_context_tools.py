"""What a session asks of its own past, through a running stack: found, inspected and handed back
word for word, after several depths of summaries, and never from another session.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from perdure.context import Summary
from perdure.domain.labels import Label
from perdure.domain.messages import Message
from perdure.store.tables import messages
from tests.support import watching
from tests.support.conversations import Conversation
from tests.support.stack import Stack, fresh_key, running_stack, until

CONFIG = """
[agents.main]
tools = ["files", "context"]
context_window = 16000
clearance = "CONFIDENTIAL"

[context]
fresh_tail = 4
threshold = 0.3
leaf_fan_in = 2
condensed_fan_in = 2
inline_expansion_tokens = 600
"""
#: The first message of every conversation here, with all that makes texts hard to hand back.
FIRST = (
    'The password of the safe is korund-7731.\r\n\tTabs, <summary id="x">tags</summary>, '
    'quotes " and \\ and a NUL \0, 你好世界, 👩‍🚀, ﷽ and a line\u2028separator.\n\n--- end ---\n'
)
#: Turns after which what was said first lies under three depths of summaries.
DEEP = 250
LONG = "".join(f"{number:04} is a line of the long message.\n" for number in range(280))[:10_000]


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("context")
    async with running_stack(home, temporal_address, config=CONFIG) as running:
        yield running


async def old(stack: Stack, *first: str, label: Label = Label.PUBLIC, turns: int = 60) -> str:
    """A session that has said `first`, and then so much that this is deep below."""
    key = fresh_key("context")
    talk = await Conversation.open(stack.client.store, key)
    said = [text for one in first for text in (one, "noted")]
    await talk.fill([*said, *map(ordinary, range(2 * turns))], label)
    # A session that is over its limit is swept before it answers, and after.
    for _ in range(10):
        await stack.client.ask(key, "/say go on", timeout=60)
        if turns < DEEP or await depth(stack, key) >= 3:
            break
    await until(lambda: swept(stack, key))
    return key


def ordinary(number: int) -> str:
    """What is said on an ordinary day, never the same."""
    parts = (f"Part {number}.{n} of the ordinary work took {number * n} minutes." for n in range(8))
    return " ".join(parts)


async def depth(stack: Stack, key: str) -> int:
    tree = await stack.client.store.nodes.tree(key)
    return max((node.depth for node in tree.summaries), default=0)


async def swept(stack: Stack, key: str) -> bool:
    return (await stack.client.store.sweeps.state(key)).ended is not None


async def top(stack: Stack, key: str, seq: int) -> Summary:
    """The summary in the context under which a message lies."""
    view = await stack.client.store.tails.look(key, 1_000_000)
    assert view is not None
    return next(one for one in view.summaries if one.covers(seq))


async def calls(stack: Stack, key: str, *directives: str) -> list[Any]:
    """The results of tool calls, each a step of its own."""
    answer = await stack.client.ask(key, "\n---\n".join(directives), timeout=60)
    made = await watching.rows(stack, messages, key)
    return [json.loads(one.text) for one in made if (one.turn, one.role) == (answer.turn, "tool")]


def call(tool: str, **arguments: Any) -> str:
    return f"/{tool} {json.dumps(arguments)}"


def whole(stack: Stack, key: str, result: dict[str, Any]) -> str:
    """What an expansion handed back, from wherever it put it."""
    if result["body"] is not None:
        return str(result["body"])
    place = watching.workspace(stack, key) / result["path"]
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    return "".join(file.read_bytes().decode() for file in files)


def shown(message: Message) -> str:
    """A message as it must stand in an expansion."""
    return json.dumps(message.text) if "\0" in message.text else message.text


# Handed back ---------------------------------------------------------------------------------


async def test_the_first_message_is_found_and_handed_back_exactly_after_three_depths(
    stack: Stack,
) -> None:
    key = await old(stack, FIRST, turns=DEEP)
    assert await depth(stack, key) >= 3
    found, expanded, alone = await calls(
        stack,
        key,
        call("ctx_search", query="korund-7731"),
        call("ctx_expand", summary_id="{{1.hits.0.summary_id}}"),
        call("ctx_expand", summary_id="{{1.hits.0.id}}"),
    )
    hit = found["hits"][0]
    assert (hit["kind"], hit["rank"], found["lane"]) == ("message", 1, "fts")
    assert "korund-7731" in hit["snippet"]
    kept = FIRST.replace("\0", "\ufffd")  # as every text is stored
    assert kept in whole(stack, key, expanded)
    assert (expanded["unrecoverable"], alone["messages"]) == (0, 1)
    assert kept in alone["body"]
    assert "no instruction" in found["notice"]
    assert "no instruction" in alone["notice"]


async def test_a_long_message_deep_below_is_handed_back_whole(stack: Stack) -> None:
    """lossless-claw #1080: ten thousand characters, at depth 3."""
    key = await old(stack, "first", LONG, turns=DEEP)
    summary = await top(stack, key, 3)
    assert summary.depth >= 3
    inspected, expanded = await calls(
        stack,
        key,
        call("ctx_inspect", summary_id=summary.id),
        call("ctx_expand", summary_id=summary.id),
    )
    assert expanded["messages"] == inspected["covered_messages"] == summary.messages
    assert expanded["body"] is None
    text = whole(stack, key, expanded)
    assert LONG in text
    pages = stack.client.store.nodes.messages(key, 0, summary.first_seq, summary.last_seq)
    assert all([shown(message) in text async for page in pages for message in page])
    (read,) = await calls(stack, key, call("grep", pattern="^0250 is", path=expanded["path"]))
    assert read["total"] == 1


async def test_an_inspection_tells_figures_and_no_content(stack: Stack) -> None:
    key = await old(stack, FIRST, turns=DEEP)
    summary = await top(stack, key, 1)
    (told,) = await calls(stack, key, call("ctx_inspect", summary_id=summary.id))
    assert set(told) == {
        *("summary_id", "kind", "depth", "earliest_at", "latest_at", "token_count"),
        *("covered_messages", "children", "label", "fallback"),
    }
    assert (told["kind"], told["depth"]) == ("condensed", summary.depth)
    (child,) = await calls(stack, key, call("ctx_inspect", summary_id=told["children"][0]))
    assert child["depth"] == summary.depth - 1


# Found ---------------------------------------------------------------------------------------


async def test_chinese_japanese_and_korean_are_found_from_one_character_on(stack: Stack) -> None:
    """lossless-claw #125, hermes-agent #14829."""
    texts = [f"第{n}回の会議は東京で開かれた。猫がいた。" for n in range(8)]
    texts += [f"我们在北京讨论了计划{n}。" for n in range(8)] + ["서울에서 만났다"]
    key = await old(stack, *texts)
    queries = ["猫", "東京", "北京", "京", "서울"]
    results = await calls(
        stack, key, *(call("ctx_search", query=q, scope="messages", limit=30) for q in queries)
    )
    for query, result in zip(queries, results, strict=True):
        there = {f"msg_{n}" for n, text in enumerate(texts, 1) if query in text}
        assert there
        assert there <= {hit["id"] for hit in result["hits"]}


async def test_no_query_fails_and_none_that_is_there_comes_back_empty(stack: Stack) -> None:
    """hermes-lcm #354, #460."""
    text = "See gateway/run.py: user@host said don't use C++ (or 38.101), it's 50% \"slow\" -- ok?"
    key = await old(stack, text)
    there = ["gateway/run.py", "user@host", "don't", "C++", "38.101", "50%", '"slow"', "ok?", "--"]
    anything = ["", " ", "(", ')"', "AND", "NOT", "a OR", "*", '"', "-", "NEAR(", "^", ":", "%_"]
    results = []
    for start in range(0, len(there + anything), 6):
        some = (there + anything)[start : start + 6]
        results += await calls(stack, key, *(call("ctx_search", query=q, limit=3) for q in some))
    for query, result in zip(there + anything, results, strict=True):
        assert "hits" in result, (query, result)
    for query, result in zip(there, results, strict=False):
        assert result["hits"], query


async def test_summaries_are_found_too_and_a_limit_is_clamped(stack: Stack) -> None:
    key = await old(stack, FIRST)
    said, summaries, both = [
        found
        for scope in ("messages", "summaries", "both")
        for found in await calls(
            stack, key, call("ctx_search", query="ordinary work", scope=scope, limit=1_000)
        )
    ]
    assert {hit["kind"] for hit in said["hits"]} == {"message"}
    assert {hit["kind"] for hit in summaries["hits"]} == {"summary"}
    assert summaries["lane"] == "fts"
    assert {hit["kind"] for hit in both["hits"]} == {"message", "summary"}
    assert [len(found["hits"]) for found in (said, both)] == [30, 30]
    assert [hit["rank"] for hit in both["hits"]] == list(range(1, 31))


# Kept apart ----------------------------------------------------------------------------------


async def test_nothing_is_there_of_another_session_or_of_before_a_reset(stack: Stack) -> None:
    mine, other = await old(stack, FIRST), await old(stack, "the other one says topaz")
    theirs = (await top(stack, other, 1)).id
    asked = [
        call("ctx_inspect", summary_id=theirs),
        call("ctx_expand", summary_id=theirs),
        call("ctx_inspect", summary_id="sum_nothing"),
        call("ctx_search", query="topaz"),
    ]
    inspected, expanded, missing, found = await calls(stack, mine, *asked)
    for result, name in ((inspected, theirs), (expanded, theirs), (missing, "sum_nothing")):
        assert result["error"]["code"] == "not_found"
        assert result["error"]["message"] == missing["error"]["message"].replace(
            "sum_nothing", name
        )
    assert found["hits"] == []
    mine_before = (await top(stack, mine, 1)).id
    await stack.client.reset(mine)
    expanded, found = await calls(
        stack,
        mine,
        call("ctx_expand", summary_id=mine_before),
        call("ctx_search", query="korund"),
    )
    assert expanded["error"]["code"] == "not_found"
    assert found["hits"] == []


async def test_what_an_expansion_writes_has_the_level_of_what_it_tells(stack: Stack) -> None:
    key = await old(stack, FIRST, label=Label.INTERNAL)
    summary = await top(stack, key, 1)
    (expanded,) = await calls(stack, key, call("ctx_expand", summary_id=summary.id))
    assert expanded["label"] == "INTERNAL"
    await stack.client.reset(key)
    await stack.client.ask(key, call("read", path=expanded["path"]), timeout=60)
    status = await stack.client.status(key)
    assert status.label is Label.INTERNAL


# Summarised ----------------------------------------------------------------------------------


async def test_a_session_or_a_topic_is_summarised_with_label_and_span(stack: Stack) -> None:
    key = await old(stack, FIRST, "The budget of project zephyr is 12,400 euro.")
    session, topic, nothing, wrong = await calls(
        stack,
        key,
        call("summarize"),
        call("summarize", scope="topic", topic="project zephyr"),
        call("summarize", scope="topic", topic="unheard-of"),
        call("summarize", topic="project zephyr"),
    )
    assert set(session) == {"summary", "label", "covers", "fallback"}
    said = await stack.client.history(key, limit=1)
    assert 120 < session["covers"]["messages"] <= said.total
    assert session["covers"]["from"] < session["covers"]["to"]
    assert session["fallback"] is False
    assert "12,400" in topic["summary"]
    assert topic["covers"]["messages"] < 10
    assert (nothing["error"]["code"], wrong["error"]["code"]) == ("not_found", "invalid_argument")


async def test_the_path_of_an_expansion_stays_inside_the_workspace(stack: Stack) -> None:
    """A person may name a message as a path."""
    key = fresh_key("paths")
    name = "../../../etc/cron.d/x"
    text = "a message with an odd id " * 1_000
    await stack.client.ask(key, text, message_id=name, timeout=60)
    (expanded,) = await calls(stack, key, call("ctx_expand", summary_id=name))
    assert Path(expanded["path"]).parent == Path("tool-results")
    assert text in whole(stack, key, expanded)
