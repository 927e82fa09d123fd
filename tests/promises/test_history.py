"""What a turn costs in Temporal's history: little, and the same however long the conversation is.

Each test goes through `SessionClient`, a real Temporal server and a real worker.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from activities.post import workflow_id
from tests.support import watching
from tests.support.accounting import count
from tests.support.stack import Stack, fresh_key, running_stack, until

TIMEOUT = 60


@pytest.fixture(scope="module")
async def long_runs(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    """A stack whose runs last longer than any test."""
    # Nor is its context ever full: a sweep is an activity of its own.
    config = "[limits]\nturns_per_run = 1000\n[agents.main]\ncontext_window = 1_000_000\n"
    home = tmp_path_factory.mktemp("long-runs")
    async with running_stack(home, temporal_address, config=config) as running:
        yield running


async def size(stack: Stack, key: str) -> tuple[int, int]:
    """Events and bytes of a session's history."""
    described = await stack.client.temporal.get_workflow_handle(workflow_id(key)).describe()
    info = described.raw_description.workflow_execution_info
    return info.history_length, info.history_size_bytes


async def test_a_plain_turn_costs_one_activity_and_little_history_however_long_the_conversation(
    long_runs: Stack,
) -> None:
    """From turn 10 to turn 100; every message is larger than that itself.

    A turn has two workflow tasks, one for its message and one for its answer: 11 events. Where
    the next message comes at once, both share a task: 8 events. Which of the two it is depends on
    the machine's pace, so the bound here is that of a turn that shares nothing;
    `docs/benchmarks.md` has the measured mean.
    """
    key = fresh_key("budget")
    sizes = []
    for number in range(1, 101):
        text = f"/say {number} {'words ' * 600}"
        answer = await long_runs.client.ask(key, text, timeout=TIMEOUT)
        assert answer.text.startswith(f"{number} ")
        if number % 10 == 0:
            sizes.append(await size(long_runs, key))

    tens = [(late[0] - early[0], late[1] - early[1]) for early, late in pairwise(sizes)]
    # The last may have a workflow task more in view than the first.
    assert sum(events for events, _ in tens) <= 90 * 11 + 3
    assert sum(octets for _, octets in tens) <= 90 * 2_500
    # It does not grow with the conversation: the last ten cost what the first ten cost.
    per_event = [octets / events for events, octets in tens]
    assert per_event[-1] <= 1.1 * per_event[0]

    history = await watching.history(long_runs, key)
    assert count(history, "ACTIVITY_TASK_SCHEDULED") == 100
    # Opening the session is the only local activity.
    assert count(history, "MARKER_RECORDED") == 1
    assert count(history, "UPSERT_WORKFLOW_SEARCH_ATTRIBUTES") == 0


async def test_the_first_run_and_those_after_carry_little(long_runs: Stack) -> None:
    """What a run begins with does not grow by what was said before."""
    key = fresh_key("carried")
    for number in range(5):
        await long_runs.client.ask(key, f"/say {number} {'words ' * 5_000}", timeout=TIMEOUT)
        await long_runs.client.close(key)
    await long_runs.client.ask(key, "/say end", timeout=TIMEOUT)
    events, octets = await size(long_runs, key)
    assert events <= 15
    assert octets <= 5_000


async def test_an_idle_session_costs_nothing(long_runs: Stack) -> None:
    """No timer, no heartbeat, no pending task: only the wait for the next message."""
    key = fresh_key("idle")
    await long_runs.client.ask(key, "/say hello", timeout=TIMEOUT)
    handle = long_runs.client.temporal.get_workflow_handle(workflow_id(key))

    async def settled() -> bool:
        raw = (await handle.describe()).raw_description
        return not raw.pending_activities and not raw.HasField("pending_workflow_task")

    await until(settled)
    history = await watching.history(long_runs, key)
    assert count(history, "TIMER_STARTED") == 0
    started = history[0].workflow_execution_started_event_attributes
    assert started.workflow_execution_timeout.ToNanoseconds() == 0
    assert started.workflow_run_timeout.ToNanoseconds() == 0
