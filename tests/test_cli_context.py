"""`perdure context`: the DAG drawn whole, its messages handed back to the byte, and what a model
was given at any turn, as the provider itself received it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from perdure.context.asides import UNDER_WAY
from perdure.context.assembly import NO_RESULT
from perdure.domain.envelopes import Envelope
from perdure.domain.labels import Label
from perdure.domain.messages import ToolCall
from perdure.domain.states import TurnState
from perdure.domain.steps import StepRequest
from perdure.store.summaries import Draft
from perdure.store.turns import StepAnswer
from tests.support.conversations import Conversation
from tests.support.in_process import perdure_here
from tests.support.openai_server import OpenAIServer, calls, says
from tests.support.stack import Stack, fresh_key, running_stack
from tests.support.terminal import Ran

CONFIG = """
[gateway]
level = "INTERNAL"

[agents.main]
model = "openai-chat:gpt-4o-mini"
instructions = "Answer."
tools = ["ls"]
context_window = 2500

[context]
summary_model = "rehearsal"
fresh_tail = 4
leaf_fan_in = 2
condensed_fan_in = 2
"""
TURNS = 24
WORDS = "the quick brown fox jumps over the lazy dog and runs into the dark green wood "
#: Said first, with all that makes a text hard to hand back.
FIRST = (
    'question 1: The safe is korund-7731.\r\n\tTabs, <summary id="x">tags</summary>, 你好世界, '
    "👩‍🚀, ﷽ and a line\u2028separator.\n\n--- msg_1 · user · 3 characters ---\nend\n"
)


@pytest.fixture(scope="module")
async def provider() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        yield server


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, provider: OpenAIServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    async with running_stack(
        tmp_path_factory.mktemp("context"),
        temporal_address,
        config=CONFIG,
        environ={"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": "test"},
    ) as running:
        yield running


@dataclass
class Talk:
    """A long conversation: its texts by turn, and the last request of each as it was sent."""

    key: str
    said: dict[int, str] = field(default_factory=dict)
    answered: dict[int, str] = field(default_factory=dict)
    given: dict[int, list[dict[str, Any]]] = field(default_factory=dict)


@pytest.fixture(scope="module")
async def talk(stack: Stack, provider: OpenAIServer) -> Talk:
    talk = Talk(fresh_key("context"))
    for turn in range(1, TURNS + 1):
        talk.said[turn] = FIRST if turn == 1 else f"question {turn}: {WORDS * 3}"
        talk.answered[turn] = f"answer {turn}: {WORDS * 10}"
        if turn % 6 == 0:
            provider.script(calls(("call_1", "ls", '{"path": "."}')))
        provider.script(says(talk.answered[turn]))
        await stack.client.ask(talk.key, talk.said[turn], message_id=f"q-{turn}")
        talk.given[turn] = provider.requests[-1].messages
    return talk


async def cli(stack: Stack, *arguments: str, code: int = 0) -> Ran:
    ran = await perdure_here("context", *arguments, home=stack.home, environ=stack.environ)
    assert ran.code == code, ran
    return ran


async def document(stack: Stack, *arguments: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await cli(stack, *arguments, "--json", code=code)).out)
    return found


def nodes(items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for item in items:
        if item["kind"] == "summary":
            yield item
            yield from nodes(item["children"])


async def test_the_tree_shows_every_summary_below_what_stands_for_it_and_every_message_once(
    stack: Stack, talk: Talk
) -> None:
    tree = await document(stack, talk.key)
    found = list(nodes(tree["items"]))
    assert max(node["depth"] for node in found) >= 2
    for node in found:
        assert node["tokens"] < node["source_tokens"]
        if node["children"]:
            assert sum(child["messages"] for child in node["children"]) == node["messages"]
            assert node["children"][0]["first_seq"] == node["first_seq"]
            assert node["children"][-1]["last_seq"] == node["last_seq"]
    ends = [(item["first_seq"], item["last_seq"]) for item in tree["items"]]
    assert ends == sorted(ends)
    history = await stack.client.history(talk.key)
    assert sum(item["messages"] for item in tree["items"]) == tree["messages"] == history.total
    assert sum(item["tokens"] for item in tree["items"]) == tree["tokens"] <= tree["budget"]
    below = [item["messages"] for item in tree["items"] if item["kind"] == "summary"]
    assert sum(below) == tree["summarised"]

    drawn = (await cli(stack, talk.key)).out
    assert f"context: {tree['tokens']:,} tokens of {tree['budget']:,}" in drawn
    lines = {line.split()[0]: line for line in drawn.splitlines() if line.startswith("sum_")}
    assert list(lines) == [item["id"] for item in tree["items"] if item["kind"] == "summary"]
    for node in found:
        assert len(re.findall(rf"{node['id']}  +{node['depth']} ", drawn)) == 1
    assert "messages as they are" in drawn


async def test_each_turn_is_shown_as_the_provider_was_given_it(stack: Stack, talk: Talk) -> None:
    summarised = 0
    for turn, given in talk.given.items():
        seen = await stack.client.context.at(talk.key, turn)
        shown = [message.text for message in seen.messages if message.text]
        sent = [message["content"] for message in given[1:] if message.get("content")]
        assert "\n\n".join(shown) == "\n\n".join(sent), turn
        summarised += seen.messages[0].kind == "preface"
    assert summarised > 5
    printed = await document(stack, talk.key, "--at", str(TURNS))
    assert printed == json.loads(seen.model_dump_json())
    told = (await cli(stack, talk.key, "--at", str(TURNS))).out
    assert told.startswith(f"Turn {TURNS} of {talk.key} was given ")
    assert "result of ls" in told


async def test_what_is_expanded_is_what_was_said_to_the_byte(
    stack: Stack, talk: Talk, tmp_path: Path
) -> None:
    alone = tmp_path / "alone.txt"
    ran = await cli(stack, talk.key, "--expand", "q-1", "--output", str(alone))
    assert (ran.out, ran.err) == ("", f"{alone}: 1 of 1 messages\n")
    assert await asyncio.to_thread(alone.read_bytes) == FIRST.encode()
    assert (await cli(stack, talk.key, "--expand", "q-1")).out == FIRST

    tree = await document(stack, talk.key)
    deep = max(nodes(tree["items"]), key=lambda node: node["depth"])
    said = (await cli(stack, talk.key, "--expand", deep["id"])).out
    messages = list(parsed(said))
    assert len(messages) == deep["messages"]
    every = {**{f"q-{turn}": text for turn, text in talk.said.items()}}
    assert {name: text for name, text in messages if name in every} == {
        name: text for name, text in every.items() if name in dict(messages)
    }
    assert talk.answered[1] in dict(messages).values()
    lines = (await cli(stack, talk.key, "--expand", deep["id"], "--json")).out.split("\n")[:-1]
    assert [json.loads(line)["text"] for line in lines] == [text for _, text in messages]


def parsed(text: str) -> Iterator[tuple[str, str]]:
    """The messages of an expansion, by the lengths that stand before them."""
    head = re.compile(r"--- (calls )?(\S+) · (?:.* · )?(\d+) characters ---\n")
    at = 0
    while at < len(text):
        found = head.match(text, at)
        assert found is not None, text[at : at + 100]
        end = found.end() + int(found[3])
        assert text[end] == "\n"
        if not found[1]:
            yield found[2], text[found.end() : end]
        at = end + 1


async def test_words_above_the_gateways_level_are_withheld_wherever_they_would_show(
    stack: Stack,
) -> None:
    talk = await Conversation.open(stack.client.store, fresh_key("above"))
    await talk.say("in the open")
    await talk.say("the secret", "kept", label=Label.CONFIDENTIAL)
    await talk.say("and on", label=Label.CONFIDENTIAL)
    said = await talk.messages()
    draft = Draft(
        depth=0,
        sources=tuple(message.id for message in said[:4]),
        first_seq=said[0].seq,
        last_seq=said[3].seq,
        text="of the secret",
        tokens=9,
        fallback=True,
    )
    await stack.client.store.summaries.publish(talk.key, 0, draft)
    await talk.begin("what now?", label=Label.CONFIDENTIAL)

    tree = await document(stack, talk.key)
    (node,) = nodes(tree["items"])
    assert (node["label"], node["fallback"]) == ("CONFIDENTIAL", True)
    assert "no model · CONFIDENTIAL · [withheld" in (await cli(stack, talk.key)).out
    expanded = await cli(stack, talk.key, "--expand", node["id"])
    assert "in the open" in expanded.out
    assert "2 of them are above gateway.level, INTERNAL, and withheld" in expanded.err
    seen = await cli(stack, talk.key, "--at", "4")
    everything = tree | {"told": [expanded.out, seen.out]}
    assert "secret" not in json.dumps(everything)
    # The turn that is under way is given its question, and the one before was not.
    whole = await stack.client.context.at(talk.key, 4)
    assert [message.id for message in whole.messages][-1] == "msg_4"
    earlier = await stack.client.context.at(talk.key, 1)
    assert [message.id for message in earlier.messages] == ["msg_1"]


async def test_a_turn_taken_aside_is_shown_with_its_side_thread_and_the_main_one_without(
    stack: Stack,
) -> None:
    store = stack.client.store
    talk = await Conversation.open(store, fresh_key("aside"))
    await talk.begin("ask them")
    asking = ToolCall(id="call_0", name="sessions_send", arguments="{}")
    main = {"session_key": talk.key, "agent": "main", "turn": 1, "message_id": "msg_1"}
    calling = StepAnswer(text="", tool_calls=(asking,), model="test")
    await store.turns.commit_step(StepRequest(**main, step=1), calling)
    aside = StepRequest(
        **main | {"turn": 2, "message_id": "msg_2"}, step=1, aside=True, exchange="ex_1"
    )
    envelope = Envelope(message_id="msg_2", exchange="ex_1")
    await store.mailbox.post(talk.key, envelope, "first tell me")
    await store.turns.begin_step(aside)
    answer = StepAnswer(text="told", model="test", ended=TurnState.COMPLETED)
    await store.turns.commit_step(aside, answer)

    seen = await stack.client.context.at(talk.key, 2)
    assert [message.text for message in seen.messages] == [
        *("ask them", "", UNDER_WAY, "first tell me")
    ]
    main_thread = await stack.client.context.at(talk.key, 1)
    assert [message.text for message in main_thread.messages] == ["ask them", "", NO_RESULT]
    assert (await stack.client.context.tree(talk.key)).messages == 2


async def test_a_turn_before_a_reset_is_shown_as_it_was(stack: Stack) -> None:
    talk = await Conversation.open(stack.client.store, fresh_key("reset"))
    await talk.say("before")
    await talk.reset()
    await talk.say("behind")
    seen = await document(stack, talk.key, "--at", "1")
    assert [message["text"] for message in seen["messages"]] == ["before"]
    assert (await document(stack, talk.key))["messages"] == 2


@pytest.mark.parametrize(
    ("arguments", "code", "name"),
    [
        (("default:nobody-at-all",), 3, "not_found"),
        (("default:nobody-at-all", "--at", "1"), 3, "not_found"),
        (("TALK", "--at", "99"), 3, "not_found"),
        (("TALK", "--expand", "sum_none"), 3, "not_found"),
        (("TALK", "--at", "1", "--expand", "q-1"), 2, "invalid_argument"),
        (("TALK", "--output", "x"), 2, "invalid_argument"),
        (("TALK", "--expand", "q-1", "--output", "/no/such/folder/x"), 2, "invalid_argument"),
    ],
)
async def test_what_is_not_there_or_makes_no_sense_is_refused(
    stack: Stack, talk: Talk, arguments: tuple[str, ...], code: int, name: str
) -> None:
    words = [talk.key if word == "TALK" else word for word in arguments]
    assert (await document(stack, *words, code=code))["error"]["code"] == name
