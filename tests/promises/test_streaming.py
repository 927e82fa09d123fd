"""Streamed text: written while someone listens, void when its model failed, gone when committed.

Neither Temporal's history nor the outbox ever holds any of it.
"""

from __future__ import annotations

import asyncio

from tests.support import watching
from tests.support.openai_server import OpenAIServer, fails, says
from tests.support.stack import Stack, fresh_key, until

TIMEOUT = 60
#: Many small pieces, one every 50 ms, each told from the others.
PIECES = tuple(f"piece-{number:03} " for number in range(400))


async def streamed(models: Stack, key: str) -> dict[int, str]:
    """The streamed text by generation."""
    texts: dict[int, str] = {}
    for row in await watching.delta_rows(models, key):
        texts[row.generation] = texts.get(row.generation, "") + row.text
    return texts


async def test_text_is_streamed_to_a_listener_and_dropped_when_the_answer_commits(
    models: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("listened")
    provider.script(says(*PIECES[:60], pause=0.05))
    text = ""

    async def some() -> bool:
        nonlocal text
        text = "".join((await streamed(models, key)).values())
        return len(text) > len(PIECES[0]) * 5

    async with watching.listening(models, key):
        ticket = await models.client.send(key, "speak")
        await until(some)
        result = await models.client.wait(key, ticket.message_id, timeout=TIMEOUT)

    assert result.text == "".join(PIECES[:60])
    assert result.text.startswith(text)
    assert await watching.delta_rows(models, key) == []
    kept = f"{await watching.history(models, key)} {await watching.events(models, key)}"
    assert "piece-" not in kept


async def test_text_is_written_only_while_a_listeners_lease_lives(
    models: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("leases")
    provider.script(says(*PIECES, pause=0.05))
    ticket = await models.client.send(key, "speak")
    await provider.arrived()

    # Longer than the worker takes to look for listeners.
    await asyncio.sleep(1)
    assert await watching.delta_rows(models, key) == []

    async def written() -> bool:
        return bool(await watching.delta_rows(models, key))

    async with watching.listening(models, key):
        await until(written)
    await asyncio.sleep(1)
    before = await watching.delta_rows(models, key)
    await asyncio.sleep(1)
    assert await watching.delta_rows(models, key) == before

    await models.client.interrupt(key)
    result = await models.client.wait(key, ticket.message_id, timeout=TIMEOUT)
    # Whoever listens or not, all that was said is kept, and the streamed part was its beginning.
    text = "".join(row.text for row in before)
    assert result.text.startswith(text)
    assert len(result.text) > len(text)
    assert await watching.delta_rows(models, key) == []


async def test_a_fallback_voids_the_text_of_the_model_that_failed(
    models: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("void")
    provider.script(
        says(*["void "] * 30, pause=0.05, ending="reset"),
        says(*PIECES[:40], pause=0.05, ending="hang"),
    )

    async def both() -> bool:
        return len(await streamed(models, key)) == 2

    async with watching.listening(models, key):
        ticket = await models.client.send(key, "speak", agent="chain")
        await until(both)
        first, second = (text for _, text in sorted((await streamed(models, key)).items()))
    await models.client.interrupt(key)
    result = await models.client.wait(key, ticket.message_id, timeout=TIMEOUT)

    assert "piece" not in first
    assert "void" not in second
    assert "void" not in result.text
    assert result.text.startswith(second)
    assert await watching.delta_rows(models, key) == []


async def test_text_of_a_turn_that_failed_is_dropped_with_it(
    models: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("failed")
    provider.script(says(*PIECES[:30], pause=0.05, ending="reset"), fails(401))

    async def written() -> bool:
        return bool(await watching.delta_rows(models, key))

    async with watching.listening(models, key):
        ticket = await models.client.send(key, "speak")
        await until(written)
        result = await models.client.wait(key, ticket.message_id, timeout=TIMEOUT)

    assert result.state == "failed"
    assert "piece-" not in result.text
    assert await watching.delta_rows(models, key) == []
