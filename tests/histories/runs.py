"""Scenarios of `tests.histories.record` in which a session delegates: its history is kept, and
those of all runs below it."""

from __future__ import annotations

from perdure.domain.runs import RunState
from perdure.domain.states import EventKind
from tests.support import delegating, watching
from tests.support.delegating import TIMEOUT, ask, spawn, subagents
from tests.support.stack import Stack

#: What the scenarios need of the settings; `main` is there.
AGENTS = """
[agents.pupil]
tools = ["files", "subagents", "tests.support.user_tools:late"]
steer_inject = true
"""
ENDLESS = "/sleep 600"


async def spawned(stack: Stack, key: str) -> None:
    """For a call that waits, for later, from the queue, and one that is asked on afterwards."""
    await ask(stack, key, spawn("/ls {}", "/say one"), "/say {{1.response}}")
    await ask(stack, key, spawn("/say two", later=True), "/say ordered")
    (first, second) = await delegating.all_handed(stack, key, 2)
    await delegating.answered(stack, key, second)
    order = spawn("/sleep 0.5", "/say three", later=True)
    await ask(stack, key, *[order] * 3, "---", subagents("wait"), "/say waited")
    await delegating.all_handed(stack, key, 5)
    await ask(stack, first.session_key, "/say once more")


async def deepened(stack: Stack, key: str) -> None:
    """By runs that spawn runs: awaited, and waited for before they are over; one forgets a file."""
    inner = spawn("/say deep")
    await ask(stack, key, spawn(inner, "/say {{1.response}}"), "/say {{1.response}}")
    later = spawn("/sleep 0.5", "/say deep", later=True)
    await ask(stack, key, spawn(later, "/say ordered"), "/say {{1.response}}")
    await ask(stack, key, spawn("/say done", expected_outputs=["a"]), "/say {{1.end_reason}}")


async def steered(stack: Stack, key: str) -> None:
    """One is replaced while its call waits, one takes the message in after a tool."""
    ticket = await stack.client.send(key, f"{spawn(ENDLESS)}\n/say {{{{1.response}}}}")
    (old,) = await delegating.working(stack, key)
    await stack.client.runs.steer(old.run_id, "/say instead")
    await stack.client.wait(key, ticket.message_id, timeout=TIMEOUT)

    await ask(stack, key, spawn("/late {}", "---", "/say x", agent="pupil", later=True))
    pupil = (await delegating.runs(stack, key))[-1]
    await watching.event(stack, pupil.session_key, EventKind.TOOL_STARTED)
    await stack.client.runs.steer(pupil.run_id, "/say as you say")
    delegating.open_gate(stack, pupil)
    await delegating.all_handed(stack, key, 3)
    await delegating.answered(stack, key, pupil)


async def stopped(stack: Stack, key: str) -> None:
    """A tree is killed in its model calls; a call is interrupted; a run is reset; one is lost."""
    below = spawn(ENDLESS, later=True)
    await ask(stack, key, spawn(below, "---", ENDLESS, later=True))
    (run,) = await delegating.working(stack, key)
    await delegating.working(stack, run.session_key)
    await ask(stack, key, subagents("kill", target=run.run_id))
    await delegating.have(stack, run.session_key, RunState.ENDED)
    await delegating.all_handed(stack, key)

    ticket = await stack.client.send(key, spawn("/sleep 1", "/say after all"))
    run = (await delegating.working(stack, key, 2))[-1]
    await stack.client.interrupt(key)
    await stack.client.wait(key, ticket.message_id, timeout=TIMEOUT)
    await delegating.answered(stack, key, run)

    await ask(stack, key, spawn(ENDLESS, later=True))
    run = (await delegating.working(stack, key, 3))[-1]
    await stack.client.reset(run.session_key)
    await delegating.answered(stack, key, run)
    await stack.client.reset(key)
    await ask(stack, key, "/say end")


SCENARIOS = (spawned, deepened, steered, stopped)
