"""A summary is found by what it says, by whoever may read it, for as long as it is there."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.domain.labels import Label
from perdure.search import matches_folded, modes, parse
from perdure.search.text import fold
from perdure.store import Store
from perdure.store.context_search import ContextFound, Kind
from perdure.store.integrity import mend
from perdure.store.search import Lane
from perdure.store.summaries import Draft
from tests.support.conversations import Conversation, opened
from tests.support.damage import damage

_SUMMARIES = frozenset({Kind.SUMMARY})


@pytest.fixture
async def store(tmp_path: Path, store_url: str) -> AsyncIterator[Store]:
    async with opened(tmp_path, store_url) as found:
        yield found


async def talk_of(store: Store, *texts: str, key: str = "default:talk") -> Conversation:
    """A conversation with a summary of each turn but the last."""
    talk = await Conversation.open(store, key)
    for number in range(len(texts) + 1):
        await talk.say(f"question {number}", f"answer {number}")
    for message, answer, text in zip(*[iter(await talk.messages())] * 2, texts, strict=False):
        await publish(talk, (message.id, answer.id), message.seq, answer.seq, text)
    return talk


async def publish(
    talk: Conversation, sources: tuple[str, ...], first: int, last: int, text: str, depth: int = 0
) -> None:
    draft = Draft(depth=depth, sources=sources, first_seq=first, last_seq=last, text=text, tokens=5)
    await talk.store.summaries.publish(talk.key, talk.epoch, draft)


async def search(
    talk: Conversation, query: str, level: Label = Label.PUBLIC, limit: int = 30
) -> ContextFound:
    return await talk.store.context_search.find(
        talk.key, talk.epoch, parse(query), level, kinds=_SUMMARIES, limit=limit
    )


async def found(talk: Conversation, query: str, level: Label = Label.PUBLIC) -> list[str]:
    """What the summaries say that a query finds, the one made first at the beginning."""
    hits = (await search(talk, query, level)).hits
    known = {hit.id for hit in hits}
    tree = await talk.store.nodes.tree(talk.key, talk.epoch)
    return [one.text for one in tree.summaries if one.id in known]


async def test_by_words_by_parts_of_words_and_by_phrases_over_line_ends(store: Store) -> None:
    one, other = "The ferry\n leaves   at noon.", "東京の天気、👍 see gateway/run.py:12"
    talk = await talk_of(store, one, other)
    for query in ("ferry", "FERRY noon", '"the ferry leaves at"', "erry", "eaves noo", "fer*"):
        assert await found(talk, query) == [one], query
    for query in ("京", "天気", "👍", "run.py", "ateway", '"gateway/run.py:12"', "see -ferry"):
        assert await found(talk, query) == [other], query
    assert await found(talk, "see OR ferry") == [one, other]
    assert await found(talk, "boat") == []
    lanes = [(await search(talk, query)).lane for query in ("ferry", "erry")]
    assert lanes == [Lane.FTS, Lane.TRIGRAM]


async def test_only_of_the_session_and_epoch_and_up_to_the_level(store: Store) -> None:
    talk = await Conversation.open(store)
    await talk.say("a question", "an answer", label=Label.CONFIDENTIAL)
    await talk.say("another", "and so on")
    messages = await talk.messages()
    await publish(talk, tuple(one.id for one in messages[:2]), 1, 2, "secret ferry")
    other = await talk_of(store, "other ferry", key="default:other")
    assert await found(talk, "ferry", Label.INTERNAL) == []
    assert await found(talk, "erry", Label.INTERNAL) == []
    assert await found(talk, "ferry", Label.CONFIDENTIAL) == ["secret ferry"]
    assert await found(other, "ferry", Label.RESTRICTED) == ["other ferry"]
    await talk.reset()
    assert await found(talk, "ferry", Label.RESTRICTED) == []


async def test_the_best_come_first_and_of_equals_the_newest(store: Store) -> None:
    texts = [f"ferry {number:02} and more" for number in range(12)]
    talk = await talk_of(store, "ferry ferry ferry", *texts)
    hits = (await search(talk, "ferry", limit=4)).hits
    assert [hit.snippet for hit in hits] == ["ferry ferry ferry", *reversed(texts[-3:])]
    assert [hit.rank for hit in hits] == [1, 2, 3, 4]


async def test_one_that_was_dropped_is_not_found_and_a_level_put_right_counts(
    store: Store,
) -> None:
    talk = await talk_of(store, "ferry one", "ferry two")
    await damage(
        store.database,
        "UPDATE summaries SET label = 'RESTRICTED' WHERE first_seq = 1",
        "DELETE FROM messages WHERE seq IN (3, 4)",
    )
    assert await found(talk, "ferry") == ["ferry two"]
    await mend(store.database, talk.key)
    assert await found(talk, "ferry") == ["ferry one"]


async def test_a_damaged_index_is_no_reason_to_find_nothing(store: Store) -> None:
    talk = await talk_of(store, "ferry one", "boat two")
    await damage(store.database, "DROP TABLE search_summary_words")
    if store.database.url.drivername == "sqlite":
        await damage(store.database, "DROP TABLE search_summary_trigrams")
    for query, said in (("ferry", ["ferry one"]), ("oat", ["boat two"]), ("ship", [])):
        assert await found(talk, query) == said


async def test_what_is_found_is_what_matches(store: Store) -> None:
    drawn = random.Random(1)
    pieces = ["ferry", "Ferry-boat", "é", "e\u0301x", "東京", "👍", "a.b", "rr", '"', " \n", " "]
    said = ["".join(drawn.choices(pieces, k=4)).strip() or "-" for _ in range(24)]
    talk = await talk_of(store, *said)
    tree = await store.nodes.tree(talk.key)
    known = {one.id: one.text for one in tree.summaries}
    for _ in range(300):
        query = parse("".join(drawn.choices(pieces, k=drawn.randrange(1, 4))))
        hits = await store.context_search.find(
            talk.key, 0, query, Label.PUBLIC, kinds=_SUMMARIES, limit=30
        )
        wanted: list[str] = []
        for mode in modes(query):
            wanted = wanted or [one for one in said if matches_folded(query, fold(one), mode)]
        assert sorted(known[hit.id] for hit in hits.hits) == sorted(wanted), query
        assert hits.complete
