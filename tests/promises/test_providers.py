"""Providers that fail: waited for where it helps, told where it does not, never hammered.

Whatever a provider does, the turn ends in the transcript and the session takes the next message.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from temporalio.api.workflow.v1 import PendingActivityInfo

from perdure.domain.states import EventKind, TurnState
from tests.support import model_stack, watching
from tests.support.model_stack import INPUT_PRICE, OUTPUT_PRICE
from tests.support.openai_server import OpenAIServer, Reply, calls, fails, says
from tests.support.stack import Stack, fresh_key, running_stack, until

TIMEOUT = 60


async def test_a_rate_limit_is_waited_for_and_the_wait_is_visible(
    models: Stack, provider: OpenAIServer
) -> None:
    """Promise 19: while it waits, the outbox and Temporal both say why and for how long."""
    key = fresh_key("limited")
    provider.script(fails(429, "slow down", retry_after="3"), says("in time"))

    ticket = await models.client.send(key, "hello")
    retrying = await watching.event(models, key, EventKind.STEP_RETRYING)
    waiting = await _waiting_for_attempt(models, key, 2)
    # Asked before the three seconds are over: nothing was sent meanwhile.
    assert len(provider.requests) == 1
    result = await models.client.wait(key, ticket.message_id, timeout=TIMEOUT)

    assert result.text == "in time"
    assert len(provider.requests) == 2
    assert retrying.payload["attempt"] == 1
    assert retrying.payload["delay"] == 3
    assert "429" in retrying.payload["reason"]
    assert "slow down" in retrying.payload["reason"]
    assert waiting.activity_type.name == "take_step"
    assert "429" in waiting.last_failure.message
    assert waiting.current_retry_interval.seconds == 3
    started = [e.at for e in await watching.events(models, key, EventKind.STEP_STARTED)]
    assert (started[1] - started[0]).total_seconds() >= 3


@pytest.mark.parametrize(
    "failure",
    [
        fails(500, "the engine died"),
        fails(503, "overloaded"),
        Reply(text=("half an ans",), ending="reset"),
        Reply(text=("half an ans",), ending="cut"),
        Reply(text=("half an ans",), ending="error"),
    ],
    ids=["500", "503", "reset", "cut", "error-in-stream"],
)
async def test_a_passing_fault_is_tried_again_and_leaves_no_trace_in_the_answer(
    models: Stack, provider: OpenAIServer, failure: Reply
) -> None:
    key = fresh_key("passing")
    provider.script(failure, says("well again"))

    result = await models.client.ask(key, "hello", timeout=TIMEOUT)

    assert (result.state, result.text) == (TurnState.COMPLETED, "well again")
    assert len(provider.requests) == 2
    assert [m.role for m in await watching.transcript(models, key)] == ["user", "assistant"]


async def test_a_provider_that_always_fails_ends_the_turn_after_its_attempts(
    models: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("always")
    provider.default = lambda _: fails(500, "the engine died")

    result = await models.client.ask(key, "hello", timeout=TIMEOUT)

    assert len(provider.requests) == models.settings.limits.step_attempts
    assert result.state is TurnState.FAILED
    assert result.error is not None
    assert "HTTP 500" in result.text
    assert "the engine died" in result.text
    assert (await watching.transcript(models, key))[-1].text == result.text
    delays = [
        e.payload["delay"] for e in await watching.events(models, key, EventKind.STEP_RETRYING)
    ]
    assert delays == sorted(delays)
    assert len(delays) == models.settings.limits.step_attempts - 1
    await _takes_the_next_message(models, provider, key)


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        (fails(401, "no such key"), "denied", "OPENAI_API_KEY"),
        (fails(404, "no such model", code="model_not_found"), "not_found", "no such model"),
        (fails(400, "bad request"), "invalid_argument", "bad request"),
        (
            fails(429, "you have no money", code="insufficient_quota"),
            "limit_exceeded",
            "you have no money",
        ),
    ],
    ids=["401", "404", "400", "quota"],
)
async def test_a_lasting_fault_ends_the_turn_at_once_and_says_what_to_do(
    models: Stack, provider: OpenAIServer, failure: Reply, code: str, words: str
) -> None:
    key = fresh_key("lasting")
    provider.script(failure)

    result = await models.client.ask(key, "hello", timeout=TIMEOUT)

    assert len(provider.requests) == 1
    assert result.state is TurnState.FAILED
    assert result.error is not None
    assert result.error["code"] == code
    assert words in result.text
    assert "test-key" not in result.text
    assert (await watching.transcript(models, key))[-1].text == result.text
    await _takes_the_next_message(models, provider, key)


@pytest.mark.parametrize(
    ("agent", "code", "words"),
    [
        ("misspelt", "not_found", "openai-chatt"),
        ("keyless", "denied", "ANTHROPIC_API_KEY"),
    ],
)
async def test_an_unknown_model_and_a_missing_key_end_the_turn_and_not_the_session(
    models: Stack, provider: OpenAIServer, agent: str, code: str, words: str
) -> None:
    key = fresh_key("setup")
    for _ in range(2):
        result = await models.client.ask(key, "hello", agent=agent, timeout=TIMEOUT)

        assert result.state is TurnState.FAILED
        assert result.error is not None
        assert result.error["code"] == code
        assert words in result.text
    assert result.turn == 2
    assert provider.requests == []


async def test_a_call_that_takes_longer_than_a_step_may_ends_the_turn_as_timed_out(
    temporal_address: str, provider: OpenAIServer, tmp_path: Path
) -> None:
    """Each attempt is given up and its connection closed; what it would have said is not kept."""
    config = f'[agents.main]\nmodel = "{model_stack.PRICED}"\ntools = []\n'
    config += "[limits]\nstep_timeout = 3\nstep_attempts = 2\n"
    async with running_stack(
        tmp_path, temporal_address, config=config, environ=model_stack.environ(provider)
    ) as stack:
        key = fresh_key("endless")
        # The first call of a worker loads the provider's SDK, which may take as long as that.
        await stack.client.ask(fresh_key("first"), "hello", timeout=TIMEOUT)
        provider.forget()
        provider.script(*[says("never", ending="hang")] * 2)
        result = await stack.client.ask(key, "hello", timeout=TIMEOUT)

        assert result.state is TurnState.FAILED
        assert result.error is not None
        assert result.error["code"] == "timeout"
        assert "limits.step_timeout" in result.text
        assert len(provider.requests) == 2
        for request in provider.requests:
            await asyncio.wait_for(request.closed.wait(), TIMEOUT)
        await _takes_the_next_message(stack, provider, key)


async def test_a_fallback_model_answers_when_the_first_fails(
    models: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("fallback")
    provider.script(fails(500), says("from the second"))

    result = await models.client.ask(key, "hello", agent="chain", timeout=TIMEOUT)

    assert result.text == "from the second"
    assert [request.body["model"] for request in provider.requests] == ["first", "second"]
    assert [step.model for step in await watching.step_rows(models, key)] == ["openai-chat:second"]
    assert await watching.events(models, key, EventKind.STEP_RETRYING) == []


async def test_a_chain_whose_models_all_fail_names_every_one(
    models: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("none")
    provider.default = lambda _: fails(401, "no such key")

    result = await models.client.ask(key, "hello", agent="chain", timeout=TIMEOUT)

    assert result.state is TurnState.FAILED
    assert "openai-chat:first" in result.text
    assert "openai-chat:second" in result.text
    assert len(provider.requests) == 2


async def test_usage_and_cost_are_told_per_step_turn_and_session(
    models: Stack, provider: OpenAIServer
) -> None:
    """A failed attempt costs nothing; what was paid is counted once."""
    key = fresh_key("cost")
    provider.script(
        calls(("c", "add", '{"a": 1}'), usage=(1_000, 100)),
        fails(500),
        says("two", usage=(2_000, 10)),
        says("again", usage=(4_000, 1)),
    )
    first = await models.client.ask(key, "one and one", timeout=TIMEOUT)
    second = await models.client.ask(key, "again", timeout=TIMEOUT)

    steps = await watching.step_rows(models, key)
    assert [(s.input_tokens, s.output_tokens) for s in steps] == [
        (1_000, 100),
        (2_000, 10),
        (4_000, 1),
    ]
    for step in steps:
        price = step.input_tokens * INPUT_PRICE + step.output_tokens * OUTPUT_PRICE
        assert step.cost == pytest.approx(price)
    assert (first.usage.input_tokens, first.usage.output_tokens) == (3_000, 110)
    assert first.usage.cost == pytest.approx(3_000 * INPUT_PRICE + 110 * OUTPUT_PRICE)
    assert (second.usage.input_tokens, second.usage.output_tokens) == (4_000, 1)
    status = await models.client.status(key)
    assert (status.tokens.input, status.tokens.output) == (7_000, 111)
    assert status.cost == pytest.approx(7_000 * INPUT_PRICE + 111 * OUTPUT_PRICE)
    assert (status.turns, status.steps) == (2, 3)


async def test_a_model_without_a_known_price_costs_an_unknown_amount_and_not_nothing(
    models: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("priceless")

    result = await models.client.ask(key, "hello", agent="chain", timeout=TIMEOUT)

    assert result.usage.input_tokens == 11
    assert result.usage.cost is None
    assert (await models.client.status(key)).cost is None


async def test_a_failure_is_kept_without_its_secrets(models: Stack, provider: OpenAIServer) -> None:
    """Nothing of a failure that Temporal keeps holds the key or the conversation."""
    key = fresh_key("secrets")
    provider.script(fails(429, "key test-key-is-limited", retry_after="1"))

    ticket = await models.client.send(key, "my very own words")
    described = str(await _waiting_for_attempt(models, key, 2))
    await models.client.wait(key, ticket.message_id, timeout=TIMEOUT)
    kept = described + str(await watching.history(models, key))
    assert "rate_limit, HTTP 429" in kept
    assert "test-key" not in kept
    assert "my very own words" not in kept


async def _takes_the_next_message(models: Stack, provider: OpenAIServer, key: str) -> None:
    provider.forget()
    assert (await models.client.ask(key, "and now?", timeout=TIMEOUT)).text == "fine"
    (request,) = provider.requests
    roles = [message["role"] for message in request.messages]
    assert roles == ["system", "user", "assistant", "user"]


async def _waiting_for_attempt(models: Stack, key: str, attempt: int) -> PendingActivityInfo:
    """The activity that waits for its next attempt, once Temporal shows it so."""
    found: list[PendingActivityInfo] = []

    async def shown() -> bool:
        found[:] = [p for p in await watching.pending(models, key) if p.attempt == attempt]
        return bool(found)

    await until(shown)
    return found[0]
