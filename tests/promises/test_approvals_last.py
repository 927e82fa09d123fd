"""A wait for a person outlives its worker, Temporal's server, and its own run.

Each test goes through `SessionClient`, a real Temporal server and a real worker.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.local import running_server
from perdure.domain.approvals import ApprovalState
from perdure.domain.errors import Conflict
from perdure.domain.states import TurnState
from perdure.store.transcript import TurnResult
from tests.support.accounting import runs_of
from tests.support.policed import (
    CONFIG,
    TIMEOUT,
    all_approvals,
    approval,
    call,
    pending,
    results,
    rule,
    workspace,
)
from tests.support.stack import Stack, fresh_key, running_stack, until

RULES = rule("ask-delete", "PRE_TOOL_CALL", "REQUIRE_APPROVAL", ("tool", "equals", "delete"))


def deleted(stack: Stack, key: str) -> list[str]:
    """What was deleted, by the tool's own account."""
    file = workspace(stack, key).root / "deleted.txt"
    return file.read_text().splitlines() if file.exists() else []


async def ended(stack: Stack, key: str, message_id: str) -> TurnResult:
    return await stack.client.wait(key, message_id, timeout=TIMEOUT)


async def test_a_wait_outlives_the_worker_and_the_server(tmp_path: Path) -> None:
    """Both die by SIGKILL while two calls wait; one is decided while the worker is dead, one is
    decided by someone who gives up while Temporal is down."""
    key = fresh_key("outlive")
    async with running_server(tmp_path / "temporal") as temporal:
        config = CONFIG + RULES
        async with running_stack(tmp_path / "home", temporal.address, config=config) as stack:
            script = "\n".join([call("delete", ids=[1]), call("delete", ids=[2]), "/say ok"])
            ticket = await stack.client.send(key, script)
            one, two = await pending(stack, key, 2)
            stack.worker.kill()
            await stack.client.decide(one.id, approve=True, by="ada")
            stack.worker.start()

            async def first_ran() -> bool:
                return deleted(stack, key) == ["[1]"]

            await until(first_ran)
            assert await all_approvals(stack, key) == [
                ApprovalState.APPROVED,
                ApprovalState.PENDING,
            ]
            await temporal.kill()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await stack.client.decide(two.id, approve=True, by="ada")
            await temporal.start()
            # The decision stands, and whoever asks again wakes the session.
            with pytest.raises(Conflict):
                await stack.client.decide(two.id, approve=True, by="ada")
            assert (await approval(stack, two.id)).state is ApprovalState.APPROVED

            assert (await ended(stack, key, ticket.message_id)).text == "ok"
            assert deleted(stack, key) == ["[1]", "[2]"]


async def test_a_wait_goes_on_in_the_next_run(tmp_path: Path) -> None:
    """The server suggests to continue as new while a call waits and messages queue behind it."""
    key = fresh_key("roll")
    hint = ["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=40"]
    async with running_server(tmp_path / "temporal", extra_args=hint) as temporal:
        config = CONFIG + RULES
        async with running_stack(tmp_path / "home", temporal.address, config=config) as stack:
            script = [call("delete", ids=[1]), call("delete", ids=[2]), "/say done"]
            ticket = await stack.client.send(key, "\n".join(script))
            one, two = await pending(stack, key, 2)
            sent = [await stack.client.send(key, f"/say {number}") for number in range(25)]
            await until(lambda: _rolled(stack, key, 1))
            await stack.client.decide(one.id, approve=True, by="ada")
            sent += [await stack.client.send(key, f"/say {number}") for number in range(25, 45)]
            await until(lambda: _rolled(stack, key, 2))
            assert await all_approvals(stack, key) == [
                ApprovalState.APPROVED,
                ApprovalState.PENDING,
            ]
            await stack.client.decide(two.id, approve=False, by="ada", reason="no")

            result = await ended(stack, key, ticket.message_id)
            assert (result.state, result.text, result.turn) == (TurnState.COMPLETED, "done", 1)
            for number, each in enumerate(sent):
                answered = await ended(stack, key, each.message_id)
                assert (answered.turn, answered.text) == (number + 2, str(number))
            assert deleted(stack, key) == ["[1]"]
            assert len(await results(stack, key)) == 2


async def _rolled(stack: Stack, key: str, times: int) -> bool:
    return len(await runs_of(stack, key)) > times
