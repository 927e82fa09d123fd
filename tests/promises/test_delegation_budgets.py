"""Tokens and money that a run and all below it may use: what does not fit is not asked for."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable

import pytest

from perdure.domain.runs import EndReason, RunState
from perdure.domain.states import TurnState
from tests.support import delegating, model_stack, watching
from tests.support.delegating import ask, spawn
from tests.support.openai_server import OpenAIServer, Reply, Request, calls, says
from tests.support.stack import Stack, fresh_key, running_stack

TOKENS = 10_000
DOLLARS = 0.0036
CONFIG = f"""
[agents.main]
tools = ["subagents"]

[agents.spoken]
model = "{model_stack.PRICED}"
tools = ["subagents", "tests.support.user_tools:add"]

[limits]
run_tokens = {TOKENS}
run_cost = {DOLLARS}
"""
#: What a step costs here; and one that says much.
MUCH = (2_900, 100)
DEAR = (10, 2_500)


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, fake_provider: OpenAIServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    async with running_stack(
        tmp_path_factory.mktemp("budgets"),
        temporal_address,
        config=CONFIG,
        environ=model_stack.environ(fake_provider),
    ) as running:
        yield running


def adding(usage: tuple[int, int]) -> Callable[[Request], Reply]:
    """A model that goes on for ever."""
    return lambda _: calls(("1", "add", '{"a": 1}'), usage=usage)


async def test_a_step_that_does_not_fit_into_the_tokens_ends_the_run(
    stack: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("tokens")
    provider.default = adding(MUCH)
    await ask(stack, key, spawn("Go on.", agent="spoken"), "/say {{1.response}}")
    (result,) = await delegating.results(stack, key)

    assert (result["status"], result["end_reason"]) == ("failed", "budget")
    assert "tokens (1000 are left)" in result["response"]
    assert result["stats"]["tokens"] == 9_000
    assert len(provider.requests) == 3
    # Also when it is asked to go on: nothing is left.
    on = await ask(stack, result["session_key"], "Go on.")
    assert (on.state, on.error and on.error["code"]) == (TurnState.FAILED, "limit_exceeded")
    assert len(provider.requests) == 3


async def test_a_step_that_does_not_fit_into_the_money_ends_the_run(
    stack: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("money")
    provider.default = adding(DEAR)
    await ask(stack, key, spawn("Go on.", agent="spoken"))
    (result,) = await delegating.results(stack, key)

    assert result["end_reason"] == "budget"
    assert "($0.0006 are left)" in result["response"]
    assert result["stats"]["cost"] == pytest.approx(0.003, abs=1e-5)
    assert len(provider.requests) == 2


async def test_what_is_below_a_run_draws_on_its_budget(
    stack: Stack, provider: OpenAIServer
) -> None:
    """The child's budget is what its parent has left, and the parent has nothing when the child
    has used it up."""
    key = fresh_key("shared")
    below = json.dumps({"task": "Go on.", "agent": "spoken"})

    def reply(request: Request) -> Reply:
        if request.messages[1]["content"] == "Delegate.":
            return calls(("1", "sessions_spawn", below), usage=MUCH)
        return calls(("1", "add", '{"a": 1}'), usage=MUCH)

    provider.default = reply
    await ask(stack, key, spawn("Delegate.", agent="spoken"))
    (run,) = await delegating.runs(stack, key)
    (child,) = await delegating.runs(stack, run.session_key)
    assert (run.token_budget, child.token_budget) == (TOKENS, TOKENS - 3_000)
    assert (child.end_reason, run.end_reason) == (EndReason.BUDGET, EndReason.BUDGET)
    assert len(provider.requests) == 3
    assert len(await watching.step_rows(stack, run.session_key)) == 2


async def test_a_steered_run_goes_on_with_what_the_old_one_has_left(
    stack: Stack, provider: OpenAIServer
) -> None:
    key = fresh_key("steered")
    provider.script(calls(("1", "add", '{"a": 1}'), usage=MUCH), says("never", wait=600))
    await ask(stack, key, spawn("Go on.", agent="spoken", later=True))
    (old,) = await delegating.runs(stack, key)
    await provider.arrived(2)
    await stack.client.runs.steer(old.run_id, "Do this instead.")
    _, new = await delegating.have(stack, key, RunState.ENDED, 2)
    assert new.token_budget == TOKENS - 3_000
    assert new.end_reason is EndReason.COMPLETED
    assert [run.reserved_tokens for run in await delegating.runs(stack, key)] == [0, 0]
