"""Today's workflow code replays what was recorded before, in the sandbox that workers use.

The kept histories are real runs, see `tests/histories/record.py`. A change that breaks one of them
would break the sessions that are open when it is deployed.
"""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from activities.post import workflow_id
from perdure.domain.messages import Role
from perdure.domain.states import EventKind
from tests.histories import record
from tests.support import watching
from tests.support.openai_server import OpenAIServer, calls, says
from tests.support.stack import Stack, fresh_key
from worker import workflow_runner
from workflows.session import Session
from workflows.subagent import SubAgent

TIMEOUT = 60

KEPT = sorted(record.FOLDER.glob("*.json"))


async def replay(history: str) -> None:
    """Raises when the code does other than what was recorded."""
    replayer = Replayer(
        workflows=[Session, SubAgent],
        data_converter=pydantic_data_converter,
        workflow_runner=workflow_runner(),
    )
    await replayer.replay_workflow(WorkflowHistory.from_json("session/default:replayed", history))


def test_every_scenario_is_kept() -> None:
    assert {file.name.split(".")[0] for file in KEPT} == set(record.SCENARIOS)


@pytest.mark.parametrize("history", [pytest.param(file.read_text(), id=file.stem) for file in KEPT])
async def test_every_kept_history_replays(history: str) -> None:
    """Promise 16."""
    await replay(history)


def test_kept_histories_name_no_machine() -> None:
    for kept in KEPT:
        text = kept.read_text()
        assert "site-packages" not in text, kept.name
        assert "/home/" not in text, kept.name


@pytest.mark.parametrize("activity", ["take_step", "open_session"])
async def test_a_history_of_other_code_does_not_replay(activity: str) -> None:
    """The check can fail: it compares what was done. By activity and by local activity."""
    (kept,) = [file for file in KEPT if file.stem == "plain.1"]
    with pytest.raises(workflow.NondeterminismError):
        await replay(renamed(kept.read_text(), activity))


def renamed(history: str, activity: str) -> str:
    """`history` as of code in which an activity had another name."""

    def change(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: change(part) for name, part in value.items()}
        if isinstance(value, list):
            return [change(part) for part in value]
        if value == activity:
            return "other"
        with contextlib.suppress(ValueError, TypeError):
            # A local activity's name stands in a payload, which is JSON in base64.
            inner = base64.b64decode(value, validate=True).decode()
            return base64.b64encode(inner.replace(f'"{activity}"', '"other"').encode()).decode()
        return value

    changed = json.dumps(change(json.loads(history)))
    assert changed != json.dumps(json.loads(history))
    return changed


async def test_tools_that_end_in_any_order_replay_the_same(
    models: Stack, provider: OpenAIServer
) -> None:
    """Promise 15: on both lanes, and the first that was called ends as the last."""
    key = fresh_key("any-order")
    for _ in range(3):
        provider.script(
            calls(
                ("c0", "late", "{}"),
                ("c1", "ls", "{}"),
                ("c2", "add_async", '{"a": 1}'),
                ("c3", "read", '{"path": "missing"}'),
                ("c4", "add", '{"a": 2}'),
                ("c5", "no_such_tool", "{}"),
                ("c6", "early", "{}"),
            ),
            says("done"),
        )
        await models.client.ask(key, "go", timeout=TIMEOUT)
        (watching.workspace(models, key) / "gate").unlink()

    told = await watching.events(models, key, EventKind.TOOL_COMPLETED)
    ended = [event.payload["call"] for event in told if event.turn == 1]
    assert sorted(ended) == list(range(7))
    assert ended.index(0) > ended.index(6)
    results = [m for m in await watching.transcript(models, key) if m.role is Role.TOOL]
    # In the transcript they stand in the order of their calls all the same.
    assert [message.seq for message in results] == sorted(message.seq for message in results)
    assert [message.text for message in results][::7] == ["late"] * 3

    handle = models.client.temporal.get_workflow_handle(workflow_id(key))
    await replay((await handle.fetch_history()).to_json())
