"""What is meant is found without a word in common, in one language and across two.

The bundled model, loaded once; it needs no network.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.domain.memory import NewEntry, View
from perdure.memory import BUNDLED, Memory
from perdure.memory.analysis import query_terms, terms

ENTRIES = {
    "car": "The automobile would not start this morning because its battery had died.",
    "doctor": "Grandmother sees her physician about the painful knee next Tuesday.",
    "money": "Our firm earned far less last quarter than shareholders had hoped.",
    "sea": "The fishermen returned before dawn with their nets full of mackerel.",
    "meeting": "会議は来週の水曜日に延期されました。",
    "rain": "昨日は大雨で電車が止まり、歩いて帰宅した。",
    "cooking": "彼女は祖母から習った煮物の味をとても大切にしている。",
    "noise": "The neighbours complained about loud music late at night.",
    "code": "Tests of the parser are slow since every case builds a fresh grammar.",
    "garden": "Tomatoes on the balcony need watering twice a day in August.",
}


@pytest.fixture(scope="module")
async def memory(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Memory]:
    place: Path = tmp_path_factory.mktemp("meaning")
    opened = Memory(str(place / "memory"), BUNDLED, place / "locks")
    await opened.store(
        *(
            NewEntry(tenant="t", agent="main", content=content, key=key)
            for key, content in ENTRIES.items()
        )
    )
    yield opened
    await opened.close()


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("dead vehicle wouldn't turn on before work", "car"),
        ("appointment with medical specialist for old woman's leg", "doctor"),
        ("company profits disappointed investors three months ago", "money"),
        ("ミーティングが翌週にずれた", "meeting"),
        ("豪雨のため鉄道が運休になった", "rain"),
        ("the meeting was put off until Wednesday", "meeting"),
        ("trains stopped by heavy rain, walked home", "rain"),
        ("車のバッテリーが上がって動かなかった", "car"),
        ("漁師たちが魚をたくさん捕って戻った", "sea"),
    ],
)
async def test_a_paraphrase_finds_what_was_stored_without_a_shared_word(
    memory: Memory, query: str, key: str
) -> None:
    shared = set(query_terms([query])) & set(terms(ENTRIES[key]))
    assert not {term for term in shared if term.isascii() or len(term) > 2}
    found = await memory.search(View(tenant="t", agent="main"), query, 3)
    assert found.results[0].path == f"memory/{key}"
    assert found.total == len(ENTRIES)


async def test_words_that_are_shared_lead_over_what_is_only_alike(memory: Memory) -> None:
    found = await memory.search(View(tenant="t", agent="main"), "mackerel", 3)
    assert found.results[0].path == "memory/sea"
    assert found.results[0].score > 2 * found.results[1].score
