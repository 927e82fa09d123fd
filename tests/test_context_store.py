"""Summaries in the store: published once, seen by the right turns, and never in place of a word.

Each test works on a store of its own; what sweeps make of it is tested in test_context_compaction.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event

from perdure.context import View
from perdure.context.summaries import Summary, summary_id
from perdure.domain.labels import Label
from perdure.domain.messages import Message, Usage
from perdure.domain.states import EventKind
from perdure.store import Store
from perdure.store.integrity import Fault, check, mend
from perdure.store.summaries import Draft, Place
from tests.support.conversations import Conversation, opened
from tests.support.damage import damage
from tests.support.terminal import Ran, perdure


@pytest.fixture
async def store(tmp_path: Path, store_url: str) -> AsyncIterator[Store]:
    async with opened(tmp_path, store_url) as found:
        yield found


@pytest.fixture
async def talk(store: Store) -> Conversation:
    """A conversation of twelve turns."""
    talk = await Conversation.open(store)
    for turn in range(1, 13):
        await talk.say(f"question {turn}", f"answer {turn}")
    return talk


def leaf(messages: list[Message], text: str = "what was said") -> Draft:
    return Draft(
        depth=0,
        sources=tuple(message.id for message in messages),
        first_seq=messages[0].seq,
        last_seq=messages[-1].seq,
        text=text,
        tokens=5,
    )


def above(children: list[Summary], text: str = "in short") -> Draft:
    return Draft(
        depth=children[0].depth + 1,
        sources=tuple(child.id for child in children),
        first_seq=children[0].first_seq,
        last_seq=children[-1].last_seq,
        text=text,
        tokens=5,
    )


async def publish(talk: Conversation, *drafts: Draft, in_turn: int | None = None) -> list[Place]:
    return [
        await talk.store.summaries.publish(talk.key, talk.epoch, draft, in_turn=in_turn)
        for draft in drafts
    ]


async def seen(talk: Conversation, turn: int | None = None) -> list[Summary]:
    """What the next turn sees, or another one."""
    turn = talk.turn + 1 if turn is None else turn
    return list(await talk.store.summaries.view(talk.key, talk.epoch, turn))


def raw(view: View) -> list[Message]:
    """The messages that a turn sees as they are."""
    return view.groups.messages(0)


async def everything(store: Store) -> dict[str, list[tuple[object, ...]]]:
    """The whole database but the clock of the session's row."""

    def read(connection) -> dict[str, list[tuple[object, ...]]]:  # type: ignore[no-untyped-def]
        tables = ("messages", "summaries", "summary_sources", "events", "sweeps")
        return {
            t: list(map(tuple, connection.exec_driver_sql(f"SELECT * FROM {t}"))) for t in tables
        }

    return await store.database.read(read)


# Publishing ----------------------------------------------------------------------------------


async def test_a_summary_takes_the_place_of_its_messages_from_the_next_turn_on(
    talk: Conversation,
) -> None:
    said = await talk.messages()
    assert await publish(talk, leaf(said[:8])) == [Place.NEW]
    (summary,) = await seen(talk)
    assert (summary.first_seq, summary.last_seq, summary.messages) == (1, 8, 8)
    assert summary.source_tokens == sum(message.tokens for message in said[:8])
    assert (summary.earliest_at, summary.latest_at) == (said[0].at, said[7].at)
    assert await seen(talk, talk.turn) == []
    await talk.begin("next")
    view = await talk.view()
    assert [one.id for one in view.summaries] == [summary.id]
    assert [message.id for message in raw(view)] == [
        *(message.id for message in said[8:]),
        "msg_13",
    ]
    events = await talk.store.outbox.page(talk.key)
    told = [one for one in events if one.kind is EventKind.CONTEXT_COMPACTED]
    assert [one.payload["summary_id"] for one in told] == [summary.id]
    assert "said" not in str(told)


async def test_publishing_again_changes_nothing_whatever_the_text(talk: Conversation) -> None:
    said = await talk.messages()
    await publish(talk, leaf(said[:8]))
    before = await everything(talk.store)
    for text in ("what was said", "another try of another model"):
        assert await publish(talk, leaf(said[:8], text)) == [Place.KNOWN]
    assert await everything(talk.store) == before
    (summary,) = await seen(talk)
    assert summary.id == summary_id(talk.key, 0, 0, [message.id for message in said[:8]])


async def test_two_who_publish_the_same_at_once_make_one_node(talk: Conversation) -> None:
    said = await talk.messages()
    places = await asyncio.gather(*(publish(talk, leaf(said[:8], f"try {n}")) for n in range(8)))
    assert sorted(place for (place,) in places) == [Place.KNOWN] * 7 + [Place.NEW]
    assert len(await seen(talk)) == 1


async def test_what_was_paid_for_a_draft_is_counted_also_when_it_comes_too_late(
    talk: Conversation,
) -> None:
    said = await talk.messages()
    usage = Usage(input_tokens=100, output_tokens=10, cost=0.5)
    draft = leaf(said[:8]).model_copy(update={"usage": usage})
    await publish(talk, draft, draft)
    session = await talk.store.sessions.get(talk.key)
    assert session is not None
    assert session.usage == usage + usage
    state = await talk.store.sweeps.state(talk.key)
    assert (state.day_tokens, state.day_cost) == (220, 1.0)


async def test_a_draft_whose_range_has_changed_is_not_published(talk: Conversation) -> None:
    said = await talk.messages()
    with_a_gap = leaf([*said[:3], *said[4:8]])
    assert await publish(talk, leaf(said[:8])) == [Place.NEW]
    overlapping = [leaf(said[4:12]), leaf(said[:4]), leaf(said[2:6])]
    assert await publish(talk, with_a_gap, *overlapping) == [Place.STALE] * 4
    stranger = leaf(said[8:12]).model_copy(update={"sources": ("a", "b", "c", "d")})
    assert await publish(talk, stranger) == [Place.STALE]
    assert len(await seen(talk)) == 1


async def test_what_was_summarised_before_a_reset_is_not_published_after_it(
    talk: Conversation,
) -> None:
    said = await talk.messages()
    await publish(talk, leaf(said[:8]))
    await talk.reset()
    place = await talk.store.summaries.publish(talk.key, 0, leaf(said[8:16]))
    assert place is Place.STALE
    await talk.begin("after the reset")
    view = await talk.view()
    assert view.summaries == ()
    assert [message.text for message in raw(view)] == ["after the reset"]


async def test_a_summary_of_summaries_replaces_them_and_past_turns_see_what_they_saw(
    talk: Conversation,
) -> None:
    said = await talk.messages()
    await publish(talk, leaf(said[:4]), leaf(said[4:8]))
    await talk.say("more")
    leaves = await seen(talk, 13)
    await publish(talk, above(leaves))
    (node,) = await seen(talk)
    assert (node.depth, node.messages, node.first_seq, node.last_seq) == (1, 8, 1, 8)
    assert node.source_tokens == sum(child.tokens for child in leaves)
    assert await seen(talk, 12) == []
    assert [one.id for one in await seen(talk, 13)] == [one.id for one in leaves]
    assert [one.id for one in await talk.store.nodes.children(talk.key, node.id)] == [
        one.id for one in leaves
    ]
    assert await check(talk.store.database, talk.key) == []


async def test_summaries_with_a_raw_message_between_them_are_not_made_one(
    talk: Conversation,
) -> None:
    said = await talk.messages()
    await publish(talk, leaf(said[:4]), leaf(said[6:10]))
    leaves = await seen(talk)
    assert await publish(talk, above(leaves)) == [Place.STALE]
    assert await publish(talk, above(leaves[::-1])) == [Place.STALE]
    await publish(talk, leaf(said[4:6]))
    assert await publish(talk, above(await seen(talk))) == [Place.NEW]
    # A child that was replaced already is replaced once.
    assert await publish(talk, above(leaves[:1])) == [Place.STALE]


async def test_a_sweep_during_a_turn_is_seen_by_the_next_and_one_that_is_urgent_at_once(
    talk: Conversation,
) -> None:
    said = await talk.messages()
    await talk.begin("a long turn")
    await publish(talk, leaf(said[:4]))
    before = await talk.view()
    assert before.summaries == ()
    await publish(talk, leaf(said[4:8]), in_turn=talk.turn)
    assert [one.first_seq for one in (await talk.view()).summaries] == [5]
    await talk.store.summaries.adopt(talk.key, 0, talk.turn)
    view = await talk.view()
    assert [one.first_seq for one in view.summaries] == [1, 5]
    assert [message.seq for message in raw(view)] == list(range(9, 26))


async def test_what_is_urgent_for_a_turn_that_is_over_is_seen_by_the_next(
    talk: Conversation,
) -> None:
    said = await talk.messages()
    await publish(talk, leaf(said[:4]), in_turn=talk.turn - 1)
    assert await seen(talk, talk.turn) == []
    assert len(await seen(talk)) == 1


async def test_a_result_that_comes_late_lies_under_the_summary_of_its_call(
    talk: Conversation,
) -> None:
    await talk.begin("look twice")
    await talk.call("the first", None)
    await talk.answer("one is missing", step=2)
    said = await talk.messages()
    call = next(message for message in said if message.tool_calls)
    cut = [message for message in said if message.seq <= call.seq]
    assert await publish(talk, leaf(cut)) == [Place.STALE]
    whole = [message for message in said if message.seq <= call.seq + 1]
    assert await publish(talk, leaf(whole)) == [Place.NEW]
    await talk.seal(call.tool_calls[1], 1, "the second", step=1)
    await talk.begin("and now")
    view = await talk.view()
    assert [message.text for message in raw(view)] == ["one is missing", "and now"]
    (summary,) = view.summaries
    under = talk.store.nodes.messages(talk.key, 0, summary.first_seq, summary.last_seq)
    assert [m.text async for page in under for m in page][-2:] == ["the first", "the second"]


async def test_what_was_said_on_a_side_thread_is_in_no_context_and_under_no_summary(
    talk: Conversation,
) -> None:
    await damage(talk.store.database, "UPDATE messages SET aside = true WHERE seq IN (3, 4, 5)")
    outline = await talk.store.outlines.of(talk.key, 1_000_000)
    assert outline is not None
    assert [item.first_seq for item in outline.items[:3]] == [1, 2, 6]
    said = await talk.messages()
    assert await publish(talk, leaf(said[:2]), leaf(said[2:5])) == [Place.NEW] * 2
    assert await publish(talk, above(await seen(talk))) == [Place.NEW]
    (node,) = await seen(talk)
    assert (node.first_seq, node.last_seq, node.messages) == (1, 8, 5)
    assert await check(talk.store.database, talk.key) == []


async def test_a_summary_has_the_highest_label_of_what_it_covers(talk: Conversation) -> None:
    await talk.say("a secret", label=Label.CONFIDENTIAL)
    await talk.say("no secret")
    said = await talk.messages()
    await publish(talk, leaf(said[:4]), leaf(said[4:26]))
    low, high = await seen(talk)
    assert (low.label, high.label) == (Label.PUBLIC, Label.CONFIDENTIAL)
    await publish(talk, above([low, high]))
    assert [one.label for one in await seen(talk)] == [Label.CONFIDENTIAL]


# What a step reads ---------------------------------------------------------------------------


async def test_a_step_sees_a_new_summary_though_the_session_said_nothing_since(
    talk: Conversation,
) -> None:
    await talk.begin("next")
    said = await talk.messages()
    warm = await talk.view()
    assert len(raw(warm)) == 25
    await publish(talk, leaf(said[:8]), in_turn=talk.turn)
    view = await talk.view()
    assert (len(view.summaries), len(raw(view))) == (1, 17)
    assert view.tokens == 5 + sum(message.tokens for message in said[8:])
    await mend_after(talk, "UPDATE summaries SET last_seq = 2 WHERE depth = 0 AND first_seq > 90")
    again = await talk.view()
    assert (again.summaries, raw(again)) == (view.summaries, raw(view))


async def test_a_step_reads_the_raw_messages_of_every_gap_as_far_as_its_budget_reaches(
    talk: Conversation,
) -> None:
    said = await talk.messages()
    await publish(talk, leaf(said[2:6]), leaf(said[10:14]))
    await talk.begin("next")
    view = await talk.view()
    assert [message.seq for message in raw(view)] == [1, 2, 7, 8, 9, 10, *range(15, 26)]
    assert not view.cut
    short = await talk.view(budget=30)
    assert short.cut
    assert [message.seq for message in raw(short)][-1] == 25
    assert sum(message.tokens for message in raw(short)) < 60


async def test_what_a_past_turn_saw_can_be_looked_at_again_exactly(talk: Conversation) -> None:
    said = await talk.messages()
    seen_then = []
    for start in (0, 4, 8, 12):
        await talk.begin(f"turn after {start}")
        then = await talk.view()
        seen_then.append((talk.turn, then.summaries, raw(then)))
        await talk.answer("fine")
        await publish(talk, leaf(said[start : start + 4]))
        if start == 4:
            await publish(talk, above(await seen(talk)))
    await talk.reset()
    await talk.say("begin anew")
    for turn, summaries, messages in seen_then:
        again = await talk.store.tails.look_back(talk.key, turn, 1_000_000)
        assert again is not None
        assert [one.id for one in again.summaries] == [one.id for one in summaries]
        # It saw no answer of its own yet.
        assert raw(again)[:-1] == messages
    assert await talk.store.tails.look_back(talk.key, 99, 1_000_000) is None


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
async def test_what_a_step_reads_is_found_by_an_index_however_much_there_is(
    talk: Conversation,
) -> None:
    """Flat in the length of the conversation: no table is scanned, no messages are sorted."""
    said = await talk.messages()
    await publish(talk, leaf(said[:4]), leaf(said[4:8]))
    await publish(talk, above(await seen(talk)))
    database = talk.store.database
    ran: list[tuple[str, Any]] = []

    def heard(_c: Any, _k: Any, statement: str, parameters: Any, *_: Any) -> None:
        ran.append((statement, parameters))

    event.listen(database._engine._reader, "before_cursor_execute", heard)
    await talk.begin("next")
    for _ in range(2):
        await talk.view(budget=50)
    await talk.store.outlines.of(talk.key, 1_000_000)
    await talk.store.nodes.leaves_of(talk.key, 0, [1, 2, 20])
    event.remove(database._engine._reader, "before_cursor_execute", heard)

    def plans(connection: Connection) -> list[str]:
        return [
            f"SCAN: {row[3]}" if "B-TREE" in row[3] and "FROM messages" in statement else row[3]
            for statement, parameters in ran
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        ]

    found = await database.read(plans)
    assert len(found) > 8
    assert not [step for step in found if "SCAN" in step]


# Integrity -----------------------------------------------------------------------------------


async def mend_after(talk: Conversation, *statements: str) -> list[Fault]:
    """The faults that are found, and are gone after the repair."""
    await damage(talk.store.database, *statements)
    found = await check(talk.store.database, talk.key)
    mended = await mend(talk.store.database, talk.key)
    assert {finding.fault for finding in found[:1]} <= {finding.fault for finding in mended}
    assert await check(talk.store.database, talk.key) == []
    return sorted({finding.fault for finding in found})


@pytest.fixture
async def deep(talk: Conversation) -> Conversation:
    """Two nodes of depth 1 over four leaves over sixteen messages."""
    said = await talk.messages()
    await publish(talk, *(leaf(said[start : start + 4]) for start in (0, 4, 8, 12)))
    leaves = await seen(talk)
    await publish(talk, above(leaves[:2]), above(leaves[2:]))
    return talk


@pytest.mark.parametrize(
    ("damage", "faults", "depths"),
    [
        (
            "DELETE FROM summaries WHERE first_seq = 1 AND depth = 1",
            {Fault.DANGLING_LINK, Fault.HIDDEN},
            [0, 0, 1],
        ),
        ("DELETE FROM summaries WHERE first_seq = 5", {Fault.MISSING_CHILD}, [0, 1]),
        ("DELETE FROM summary_sources", {Fault.CHILDLESS, Fault.HIDDEN}, [0, 0, 0, 0]),
        (
            "UPDATE summaries SET last_seq = 7 WHERE first_seq = 5 AND depth = 0",
            {Fault.NOT_TILED, Fault.OTHER_SOURCES},
            [0, 1],
        ),
        (
            "UPDATE summaries SET first_seq = 900, last_seq = 901 WHERE first_seq = 13",
            {Fault.EMPTY, Fault.NOT_TILED},
            [1, 0],
        ),
        (
            "UPDATE summaries SET until_turn = 2147483647 WHERE first_seq = 13",
            {Fault.NOT_REPLACED},
            [1, 1],
        ),
        ("UPDATE summaries SET until_turn = 14 WHERE depth = 1", {Fault.HIDDEN}, [1, 1]),
        ("UPDATE summaries SET label = 'RESTRICTED'", {Fault.WRONG_FACTS}, [1, 1]),
        ("UPDATE summaries SET messages = 1", {Fault.WRONG_FACTS}, [1, 1]),
        ("UPDATE summaries SET tokens = 1 WHERE depth = 0", {Fault.WRONG_FACTS}, [1, 1]),
        (
            "UPDATE summaries SET first_seq = 4 WHERE first_seq = 9",
            {Fault.OTHER_SOURCES},
            [1, 0],
        ),
    ],
)
async def test_whatever_is_wrong_is_found_and_mended_without_losing_a_word(
    deep: Conversation, damage: str, faults: set[Fault], depths: list[int]
) -> None:
    said = await deep.messages()
    assert await check(deep.store.database, deep.key) == []
    found = await mend_after(deep, damage)
    assert set(found) <= faults
    assert found
    assert [one.depth for one in await seen(deep)] == depths
    await deep.begin("go on")
    assert await deep.messages() == [*said, *raw(await deep.view())[-1:]]
    await in_one_place(deep)


async def in_one_place(talk: Conversation) -> None:
    """Every message is raw in the context, or under exactly one summary in it."""
    view = await talk.view()
    raws = [message.seq for message in raw(view)]
    for message in await talk.messages():
        over = [one.id for one in view.summaries if one.covers(message.seq)]
        assert len(over) + raws.count(message.seq) == 1, (message.seq, over)


async def test_a_repair_of_what_is_whole_changes_nothing(deep: Conversation) -> None:
    before = await everything(deep.store)
    assert await mend(deep.store.database, deep.key) == []
    assert await everything(deep.store) == before
    assert await check(deep.store.database, "default:nobody") == []


async def test_doctor_finds_what_is_wrong_and_repairs_it_when_it_is_told_to(
    deep: Conversation, tmp_path: Path, store_url: str
) -> None:
    async def doctor(*options: str) -> Ran:
        environ = {"PERDURE_STORE_URL": store_url}
        return await perdure("doctor", *options, home=tmp_path, environ=environ)

    asked = ("--context", deep.key)
    await damage(deep.store.database, "DELETE FROM summary_sources")
    found = await doctor(*asked, "--json")
    assert found.code == 1
    report = json.loads(found.out)
    assert (report["ok"], report["repaired"]) == (False, False)
    assert {finding["fault"] for finding in report["findings"]} == {"childless"}
    mended = await doctor(*asked, "--repair")
    assert (mended.code, "no message was lost" in mended.out) == (0, True)
    assert await check(deep.store.database, deep.key) == []
    assert (await doctor("--context", "default:nobody")).code == 3
