"""Sweeps over a real store with real summariser calls: whatever the summariser does, and wherever
the process dies, no word is lost, nothing is done twice, and nothing goes where it may not.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from perdure.domain.compaction import SweepEnd
from perdure.domain.labels import Label, can_flow, join
from perdure.domain.messages import Message
from perdure.domain.states import EventKind
from perdure.models import resolve
from perdure.store import Store
from perdure.store.audit import AuditLog
from perdure.store.integrity import check
from tests.support.conversations import Conversation
from tests.support.openai_server import OpenAIServer, says
from tests.support.sweeping import (
    BUDGET,
    SMALL,
    WORDS,
    WORST,
    asking,
    history_of,
    short,
    sweeping,
)


@pytest.fixture
async def provider(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "test-key")
        server.default = short
        # Importing an SDK takes seconds, which are not the summariser's.
        await resolve("openai-chat:warm")
        yield server


async def talk_of(store: Store, turns: int = 12, size: int = 20) -> Conversation:
    """A conversation with tools, long texts and short ones."""
    talk = await Conversation.open(store)
    for turn in range(1, turns + 1):
        await talk.begin(f"question {turn} " + WORDS * (turn % 4 * size // 2))
        if turn % 3 == 0:
            await talk.call(f"result of {turn} " + WORDS * size, None if turn % 2 else "short")
            await talk.answer(f"answer {turn} " + WORDS * size, step=2)
        else:
            await talk.answer(f"answer {turn} " + WORDS * size)
    return talk


async def in_one_place(talk: Conversation) -> None:
    """Every message is raw in the next turn's context, or under exactly one summary of it; every
    summary is smaller than what it was made from; and the DAG is whole."""
    view = await talk.store.tails.look(talk.key, 10_000_000)
    assert view is not None
    raw = [message.id for message in view.groups.messages(0)]
    for message in await talk.messages():
        over = [one for one in view.summaries if one.covers(message.seq)]
        assert len(over) + raw.count(message.id) == 1, message.id
    tree = await talk.store.nodes.tree(talk.key)
    assert all(node.tokens < node.source_tokens for node in tree.summaries)
    assert await check(talk.store.database, talk.key) == []


async def under(talk: Conversation, summary_id: str) -> list[Message]:
    """The messages that a summary stands for."""
    summary = await talk.store.nodes.summary(talk.key, summary_id)
    assert summary is not None
    span = (summary.first_seq, summary.last_seq)
    pages = talk.store.nodes.messages(talk.key, summary.epoch, *span)
    return [message async for page in pages for message in page]


async def state_of(store: Store) -> dict[str, list[tuple[object, ...]]]:
    """What is stored of the context, times and bills left out."""

    def read(connection: Any) -> dict[str, list[tuple[object, ...]]]:
        queries = {
            "messages": "SELECT session_key, seq, id, text FROM messages ORDER BY 1, 2",
            "summaries": "SELECT id, depth, first_seq, last_seq, text, until_turn, from_turn"
            " FROM summaries ORDER BY 1",
            "links": "SELECT * FROM summary_sources ORDER BY 1, 2, 3",
            "events": "SELECT payload FROM events WHERE kind = 'context.compacted' ORDER BY 1",
        }
        return {
            name: list(map(tuple, connection.exec_driver_sql(query)))
            for name, query in queries.items()
        }

    return await store.database.read(read)


# Whatever the summariser does ----------------------------------------------------------------


@pytest.mark.parametrize("worst", sorted(WORST))
async def test_no_word_is_lost_and_every_sweep_ends_whatever_the_summariser_does(
    provider: OpenAIServer, tmp_path: Path, worst: str
) -> None:
    provider.default = WORST[worst]
    config = asking(context="call_seconds = 0.5\nsweep_seconds = 60\n")
    async with sweeping(tmp_path / "home", config) as sweeper:
        talk = await talk_of(sweeper.store)
        said = await talk.messages()
        ends = []
        while not ends or ends[-1] is SweepEnd.PASSES:
            before = len(provider.requests)
            outcome = await sweeper.sweep(talk)
            ends.append(outcome.ended)
            await in_one_place(talk)
            # Two calls for a pass; and none after one that failed.
            assert len(provider.requests) - before <= 24
            if worst in ("slow", "failing auth", "broken"):
                assert len(provider.requests) - before == 1
        assert ends[-1] is SweepEnd.BELOW
        assert outcome.tokens_after <= 0.75 * BUDGET
        assert await talk.messages() == said
        view = await sweeper.store.tails.look(talk.key, BUDGET)
        assert view is not None
        told = [message.text for one in view.summaries for message in await under(talk, one.id)]
        assert told == [message.text for message in said[: len(told)]]
        assert all(one.fallback for one in view.summaries) == (
            worst not in ("short", "breaking out")
        )
        before = len(provider.requests)
        assert (await sweeper.sweep(talk)).published == 0
        assert len(provider.requests) == before


async def test_two_sweeps_in_a_row_cover_what_they_cover_and_leave_the_rest(
    tmp_path: Path,
) -> None:
    """pi #2608."""
    async with sweeping(tmp_path / "home") as sweeper:
        talk = await talk_of(sweeper.store)
        for _ in range(2):
            await sweeper.sweep(talk)
            await in_one_place(talk)
            for turn in range(6):
                await talk.say(f"more {turn} " + WORDS * 10, "answer " + WORDS * 20)
        await in_one_place(talk)


async def test_fifty_sweeps_keep_the_context_small_and_never_take_the_instructions_in(
    tmp_path: Path,
) -> None:
    """openclaw #48547."""
    config = f'[agents.main]\ninstructions = "The system prompt is a parrot."\n{SMALL}'
    async with sweeping(tmp_path / "home", config) as sweeper:
        talk = await Conversation.open(sweeper.store)
        for sweep in range(50):
            for turn in range(3):
                await talk.say(f"question {sweep}.{turn} " + WORDS * 10, "answer " + WORDS * 20)
            outcome = await sweeper.sweep(talk)
            assert outcome.tokens_after <= 0.75 * BUDGET
        await in_one_place(talk)
        tree = await sweeper.store.nodes.tree(talk.key)
        assert 3 <= max(node.depth for node in tree.summaries) <= 5
        assert not any("parrot" in node.text for node in tree.summaries)
        # Of the summaries made on the way, every past turn still sees the ones it saw.
        for turn in range(1, talk.turn + 1, 7):
            seen = await sweeper.store.summaries.view(talk.key, 0, turn)
            ends = [(one.first_seq, one.last_seq) for one in seen]
            assert all(left[1] < right[0] for left, right in pairwise(ends))
            assert all(one.visible_at(turn) for one in seen)


async def test_what_gained_nothing_is_not_tried_again_until_something_changes(
    provider: OpenAIServer, tmp_path: Path
) -> None:
    """lossless-claw #639: a tail over its target. A hundred turns long nothing is asked."""
    async with sweeping(tmp_path / "home", asking()) as sweeper:
        talk = await Conversation.open(sweeper.store)
        for turn in range(80):
            await talk.say(f"short {turn}", "ok")
        await talk.begin("a very long one " + WORDS * 600)
        while (await sweeper.sweep(talk)).ended is not SweepEnd.EXHAUSTED:
            pass
        before = len(provider.requests)
        assert before
        for step in range(1, 101):
            await talk.call("nothing new", step=step)
            due = await sweeper.compaction.due(talk.key, "main", BUDGET)
            # The turn began before the sweeps: once it must be let see what they have made.
            assert (due is not None) == (step == 1)
            if due is not None:
                await sweeper.sweep(talk, urgent=due.urgent)
        assert (await sweeper.sweep(talk)).ended is SweepEnd.EXHAUSTED
        assert len(provider.requests) == before


# Wherever the process dies -------------------------------------------------------------------


class Died(BaseException):
    """Stands for the death of a process: nobody catches it."""


def dying(store: Store, at: int, *, after_commit: bool) -> None:
    """Let the process die at the `at`-th write, before it or just behind its commit."""
    write = store.database.write
    count = 0

    async def until_death(transaction: Callable[..., Any], *values: Any, **more: Any) -> Any:
        nonlocal count
        count += 1
        if count == at and not after_commit:
            raise Died
        result = await write(transaction, *values, **more)
        if count == at:
            raise Died
        return result

    store.database.write = until_death  # type: ignore[method-assign]


async def test_a_sweep_that_dies_at_any_step_goes_on_to_the_same_end(tmp_path: Path) -> None:
    """At each write, before it and behind its commit; and again in the sweep after it."""
    prepared = tmp_path / "prepared"
    async with sweeping(prepared) as sweeper:
        talk = await talk_of(sweeper.store, turns=8)
        key, turn = talk.key, talk.turn

    async def sweeps(home: Path, *deaths: tuple[int, bool]) -> dict[str, Any]:
        """What is there in the end, if sweeps die so."""
        left = list(deaths)
        while True:
            async with sweeping(home) as sweeper:
                talk = Conversation(sweeper.store, key)
                talk.turn = turn
                if left:
                    at, after_commit = left.pop(0)
                    dying(sweeper.store, at, after_commit=after_commit)
                try:
                    outcome = await sweeper.sweep(talk, budget=BUDGET // 2)
                except Died:
                    await in_one_place(talk)
                    continue
                if outcome.ended is SweepEnd.BELOW:
                    return await state_of(sweeper.store)

    def copy(name: str) -> Path:
        return shutil.copytree(prepared, tmp_path / name)

    whole = await sweeps(await asyncio.to_thread(copy, "whole"))
    assert len(whole["summaries"]) > 8
    # Nothing is written but audit entries, summaries, and in the end how it ended.
    for at in range(1, 9):
        for after_commit in (False, True):
            home = await asyncio.to_thread(copy, f"{at}-{after_commit}")
            found = await sweeps(home, (at, after_commit), (2, not after_commit))
            assert found == whole, (at, after_commit)


# Where it may go -----------------------------------------------------------------------------


async def test_a_session_above_the_summarisers_clearance_is_summarised_without_it(
    provider: OpenAIServer, tmp_path: Path
) -> None:
    config = asking(more='clearance = "RESTRICTED"')
    config += '[models."openai-chat:*"]\nclearance = "INTERNAL"\n'
    async with sweeping(tmp_path / "home", config) as sweeper:
        talk = await talk_of(sweeper.store, turns=6)
        await talk.say("the secret is a lion " + WORDS * 40, label=Label.CONFIDENTIAL)
        for _ in range(8):
            await talk.say("on " + WORDS * 30, WORDS * 30, label=Label.CONFIDENTIAL)
        outcome = await sweeper.sweep(talk, label=Label.CONFIDENTIAL)
        assert outcome.fallbacks == outcome.published > 4
        assert provider.requests == []
        await in_one_place(talk)
        asked = await AuditLog(sweeper.store.database).page(session_key=talk.key)
        refused = [entry for entry in asked if entry.hook == "PRE_CONTEXT_INJECTION"]
        assert [(entry.decision, entry.label_before) for entry in refused] == [
            ("BLOCK", "CONFIDENTIAL")
        ]
        tree = await sweeper.store.nodes.tree(talk.key)
        for node in tree.summaries:
            labels = [message.label for message in await under(talk, node.id)]
            assert node.label is join(*labels)


async def test_each_call_of_a_summariser_is_asked_and_recorded_before_it_is_made(
    provider: OpenAIServer, tmp_path: Path
) -> None:
    async with sweeping(tmp_path / "home", asking()) as sweeper:
        talk = await talk_of(sweeper.store)
        await sweeper.sweep(talk)
        asked = await AuditLog(sweeper.store.database).page(session_key=talk.key, limit=1_000)
        hooks = [(entry.hook, entry.decision) for entry in asked]
        assert len(provider.requests) > 2
        for hook in ("SECRET_ACCESS", "PRE_CONTEXT_INJECTION"):
            assert hooks.count((hook, "ALLOW")) == len(provider.requests)


async def test_what_rules_hide_from_a_model_is_hidden_from_a_summariser(
    provider: OpenAIServer, tmp_path: Path
) -> None:
    rule = """
[[policy.rules]]
id = "no-lions"
hook = "PRE_CONTEXT_INJECTION"
priority = 1
when = []
action = "REDACT"
pattern = "lion-[0-9]+"
[[policy.rules]]
id = "no-big-cats"
hook = "PRE_CONTEXT_INJECTION"
priority = 2
when = [{ field = "text", op = "contains", value = "tiger" }]
action = "BLOCK"
"""
    async with sweeping(tmp_path / "home", asking() + rule) as sweeper:
        talk = await Conversation.open(sweeper.store)
        await talk.say("the lion-12 sleeps " + WORDS * 20, "a tiger is awake " + WORDS * 20)
        for turn in range(12):
            await talk.say(f"turn {turn} " + WORDS * 20, "yes " + WORDS * 30)
        await sweeper.sweep(talk)
        read = "\n".join(history_of(request) for request in provider.requests)
        assert "sleeps" in read
        assert "lion-12" not in read
        assert "tiger" not in read
        first = (await talk.messages())[0]
        assert "lion-12" in first.text
        await in_one_place(talk)


async def test_summaries_are_paid_by_their_session_and_end_at_the_days_limit(
    provider: OpenAIServer, tmp_path: Path
) -> None:
    config = asking(context="daily_tokens = 50\n")
    provider.default = lambda request: says(*short(request).text, usage=(20, 5))
    async with sweeping(tmp_path / "home", config) as sweeper:
        talk = await talk_of(sweeper.store)
        first = await sweeper.sweep(talk)
        session = await sweeper.store.sessions.get(talk.key)
        assert session is not None
        assert (session.usage.input_tokens, session.usage.output_tokens) == (40, 10)
        assert (len(provider.requests), first.fallbacks) == (2, first.published - 2)
        assert first.ended is SweepEnd.BELOW
        for turn in range(8):
            await talk.say(f"turn {turn} " + WORDS * 20, "yes " + WORDS * 30)
        assert (await sweeper.sweep(talk)).published > 0
        assert len(provider.requests) == 2


# When it is seen -----------------------------------------------------------------------------


async def test_a_turn_sees_at_once_what_it_needs_of_a_sweep_made_for_the_next(
    tmp_path: Path,
) -> None:
    async with sweeping(tmp_path / "home") as sweeper:
        talk = await talk_of(sweeper.store)
        await talk.begin("a turn that began before its sweep")
        await sweeper.sweep(talk)
        view = await talk.view()
        assert view.summaries == ()
        assert view.tokens > BUDGET
        due = await sweeper.compaction.due(talk.key, "main", BUDGET)
        assert due is not None
        assert due.urgent
        assert (await sweeper.sweep(talk, urgent=True)).published == 0
        assert (await talk.view()).tokens <= 0.75 * BUDGET
        assert await sweeper.compaction.due(talk.key, "main", BUDGET) is None
        await in_one_place(talk)


async def test_a_sweep_of_a_session_that_is_not_there_or_was_reset_does_nothing(
    tmp_path: Path,
) -> None:
    async with sweeping(tmp_path / "home") as sweeper:
        talk = await talk_of(sweeper.store)
        await talk.reset()
        assert (await sweeper.sweep(talk)).ended is SweepEnd.BELOW
        talk.key = "default:nobody"
        assert (await sweeper.sweep(talk)).ended is SweepEnd.BELOW
        events = await sweeper.store.outbox.page()
        assert EventKind.CONTEXT_COMPACTED not in {event.kind for event in events}


async def test_labels_of_what_is_covered_flow_into_every_summary(tmp_path: Path) -> None:
    async with sweeping(tmp_path / "home") as sweeper:
        talk = await Conversation.open(sweeper.store)
        for turn in range(20):
            label = Label.INTERNAL if turn == 3 else Label.PUBLIC
            await talk.say(f"turn {turn} " + WORDS * 20, "yes " + WORDS * 30, label=label)
        await sweeper.sweep(talk)
        for node in (await sweeper.store.nodes.tree(talk.key)).summaries:
            covered = await under(talk, node.id)
            assert all(can_flow(message.label, node.label) for message in covered)
