"""Embedders fail, are replaced, and are asked again: search answers all the while, and says what
it could not do.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from perdure.domain.memory import NewEntry, Reindexed, View
from perdure.memory import HASHING, Embedder, EmbedderFailure, Memory, embedder

VIEW = View(tenant="t", agent="main")


class Scripted:
    """An embedder of another size, which can be made to fail."""

    def __init__(self, name: str, size: int = 32) -> None:
        self.name = name
        self.size = size
        self.fails = False
        self.calls = 0

    async def dimension(self) -> int:
        self._answer()
        return self.size

    async def passages(self, texts: Sequence[str]) -> list[list[float]]:
        self._answer()
        self.calls += 1
        return [self._vector(text) for text in texts]

    async def query(self, text: str) -> list[float]:
        self._answer()
        return self._vector(text)

    def _answer(self) -> None:
        if self.fails:
            raise EmbedderFailure(f"The embedder {self.name} failed: out of order.")

    def _vector(self, text: str) -> list[float]:
        # Alike is what begins alike.
        digest = hashlib.sha256(text[:3].casefold().encode()).digest()
        raw = [byte - 127.5 for byte in digest[: self.size]]
        length = sum(part * part for part in raw) ** 0.5
        return [part / length for part in raw]


@pytest.fixture
def models() -> dict[str, Scripted]:
    return {name: Scripted(name, size) for name, size in (("old", 32), ("new", 16))}


@pytest.fixture
async def memories(tmp_path: Path, models: dict[str, Scripted]) -> AsyncIterator[dict[str, Memory]]:
    """One memory, opened by those who have either model configured."""
    opened = {
        name: Memory(
            str(tmp_path / "memory"), name, tmp_path / "locks", embedders=models.__getitem__
        )
        for name in models
    }
    yield opened
    for one in opened.values():
        await one.close()


def new(content: str) -> NewEntry:
    return NewEntry(tenant="t", agent="main", content=content)


async def test_with_a_failing_embedder_words_still_answer_and_say_so(
    memories: dict[str, Memory], models: dict[str, Scripted]
) -> None:
    memory = memories["old"]
    await memory.store(new("The heron stands in the pond."))
    models["old"].fails = True
    (stored,) = await memory.store(new("The stork stands on the roof."))
    found = await memory.search(VIEW, "roof")
    assert [hit.id for hit in found.results] == [stored.id]
    assert found.note == (
        "Searched by words only, not by meaning. The embedder old failed: out of order."
    )
    models["old"].fails = False
    assert (await memory.stats(VIEW)).not_embedded == 1
    assert await memory.reindex("t") == Reindexed(done=2, total=2)
    assert (await memory.stats(VIEW)).not_embedded == 0
    # By meaning alone, now.
    found = await memory.search(VIEW, "the", words=False)
    assert (len(found.results), found.note) == (2, None)


async def test_another_model_re_embeds_step_by_step_and_search_works_meanwhile(
    memories: dict[str, Memory], models: dict[str, Scripted]
) -> None:
    await memories["old"].store(*(new(f"entry number {n}") for n in range(150)))
    memory = memories["new"]
    await memory.store(new("zebra in the yard"))
    both = await memory.search(VIEW, "entry zebra", 50, words=False)
    assert {hit.preview[:5] for hit in both.results} == {"entry", "zebra"}
    reached: list[Reindexed] = []

    def cut_off_after_the_first_step(progress: Reindexed) -> None:
        reached.append(progress)
        if len(reached) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await memory.reindex("t", cut_off_after_the_first_step)
    assert [one.done for one in reached] == [1, 65]
    assert (await memory.stats(VIEW)).not_embedded == 86
    assert len((await memory.search(VIEW, "entry number 7")).results) == 10
    before = models["new"].calls
    assert await memory.reindex("t", reached.append) == Reindexed(done=151, total=151)
    # It went on where it stood, and did nothing twice.
    assert models["new"].calls - before == 2
    models["old"].fails = True
    found = await memory.search(VIEW, "entry", words=False)
    assert (len(found.results), found.note) == (10, None)
    assert await memory.reindex("t") == Reindexed(done=151, total=151)


async def test_a_reindex_that_is_refused_keeps_what_it_has(
    memories: dict[str, Memory], models: dict[str, Scripted]
) -> None:
    await memories["old"].store(*(new(f"entry number {n}") for n in range(70)))

    def break_it(progress: Reindexed) -> None:
        models["new"].fails = progress.done > 0

    with pytest.raises(EmbedderFailure):
        await memories["new"].reindex("t", break_it)
    models["new"].fails = False
    assert (await memories["new"].stats(VIEW)).not_embedded == 6
    assert (await memories["old"].search(VIEW, "entry", words=False)).note is None


async def test_an_unknown_model_is_told_by_name_when_it_is_asked() -> None:
    with pytest.raises(EmbedderFailure, match="The embedder nobody:model failed"):
        await embedder("nobody:model").query("hello")


async def test_any_embedding_model_of_pydantic_ai_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pydantic_ai import Embedder as Client
    from pydantic_ai.embeddings import TestEmbeddingModel

    monkeypatch.setattr(
        "perdure.memory.embedders._client", lambda name: Client(TestEmbeddingModel(dimensions=8))
    )
    model: Embedder = embedder("test:any")
    memory = Memory(str(tmp_path / "memory"), "test:any", tmp_path / "locks")
    await memory.store(new("Anything at all."))
    assert await model.dimension() == 8
    assert len((await memory.search(VIEW, "something", words=False)).results) == 1
    assert (await memory.stats(VIEW)).not_embedded == 0
    await memory.close()


async def test_hashed_vectors_are_of_length_one_and_alike_for_the_same_words() -> None:
    model = embedder(HASHING)
    one, two, empty = await model.passages(["a red fox", "fox, red: a", ""])
    assert sum(part * part for part in one) == pytest.approx(1)
    assert sum(a * b for a, b in zip(one, two, strict=True)) == pytest.approx(1)
    assert sum(part * part for part in empty) == pytest.approx(1)
