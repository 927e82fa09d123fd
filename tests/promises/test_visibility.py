"""What a person sees in the Temporal UI: enough to understand a session, and nothing that was said.

Each test goes through `SessionClient`, a real Temporal server and a real worker. A needle is a
unique string; it is looked for in every byte that Temporal keeps.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.api.workflowservice.v1 import QueryWorkflowRequest
from temporalio.client import WorkflowExecutionDescription
from temporalio.converter import PayloadConverter

from activities.post import workflow_id
from perdure.domain.labels import Label
from perdure.domain.states import EventKind, TurnState
from tests.support import watching
from tests.support.accounting import runs_of
from tests.support.model_stack import AGENTS, environ
from tests.support.openai_server import OpenAIServer, calls, fails, says
from tests.support.stack import Stack, fresh_key, running_stack, server, until

TIMEOUT = 60


async def describe(stack: Stack, key: str) -> WorkflowExecutionDescription:
    return await stack.client.temporal.get_workflow_handle(workflow_id(key)).describe()


def attributes(described: WorkflowExecutionDescription) -> dict[str, str]:
    """Those that Perdure sets."""
    return {
        pair.key.name: str(pair.value)
        for pair in described.typed_search_attributes
        if pair.key.name.startswith("Perdure")
    }


async def details(stack: Stack, key: str) -> str:
    """The current details, as the UI asks for them."""
    temporal = stack.client.temporal
    request = QueryWorkflowRequest(
        namespace=temporal.namespace,
        query=WorkflowQuery(query_type="__temporal_workflow_metadata"),
    )
    request.execution.workflow_id = workflow_id(key)
    answer = await temporal.workflow_service.query_workflow(request)
    (payload,) = answer.query_result.payloads
    metadata = PayloadConverter.default.from_payload(payload, WorkflowMetadata)
    assert isinstance(metadata, WorkflowMetadata)
    return metadata.current_details


async def summaries(stack: Stack, key: str) -> list[str]:
    """The summary of every activity and marker, in order."""
    kinds = (EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED, EventType.EVENT_TYPE_MARKER_RECORDED)
    return [
        json.loads(event.user_metadata.summary.data)
        for event in await watching.history(stack, key)
        if event.event_type in kinds
    ]


async def listed(stack: Stack, query: str) -> set[str]:
    return {execution.id async for execution in stack.client.temporal.list_workflows(query)}


async def test_a_session_is_found_by_agent_kind_and_state(stack: Stack) -> None:
    working, resting, closed = fresh_key("working"), fresh_key("resting"), fresh_key("closed")
    group = f"{fresh_key('group')}~guild~g1"
    for key in (resting, closed, group):
        await stack.client.ask(key, "/say hello", timeout=TIMEOUT)
    await stack.client.close(closed)
    # A session shows that it works from its second step on.
    await stack.client.send(working, "/ls {}\n---\n/sleep 600\n/say never")

    expected = {working: "running", resting: "idle", closed: "closed", group: "idle"}
    kinds = {working: "dm", resting: "dm", closed: "dm", group: "group"}

    async def shown() -> bool:
        described = {key: attributes(await describe(stack, key)) for key in expected}
        return described == {
            key: {"PerdureAgent": "main", "PerdureKind": kinds[key], "PerdureState": state}
            for key, state in expected.items()
        }

    await until(shown)

    async def told_apart() -> bool:
        ids = {workflow_id(key) for key in (working, resting, closed, group)}
        return (
            ids & await listed(stack, "PerdureState = 'running'") == {workflow_id(working)}
            and ids & await listed(stack, "PerdureState = 'closed'") == {workflow_id(closed)}
            and ids & await listed(stack, "PerdureKind = 'group'") == {workflow_id(group)}
            and ids <= await listed(stack, "PerdureAgent = 'main'")
        )

    await until(told_apart)
    await stack.client.interrupt(working)


async def test_a_session_says_what_it_is_and_what_it_does(stack: Stack) -> None:
    key = fresh_key("details")
    await stack.client.send(key, "/ls {}\n---\n/sleep 600\n/say never", message_id="first-message")
    await stack.client.send(key, "/say waits", message_id="second-message")

    described = await describe(stack, key)
    assert await described.static_summary() == f"main · dm · {key}"

    async def at_step_two() -> bool:
        return "step 2" in await details(stack, key)

    await until(at_step_two)
    text = await details(stack, key)
    assert "**main** · calling the model" in text
    for name, value in (("session", f"`{key}`"), ("turn", 1), ("step", 2), ("waiting", 1)):
        assert f"| {name} | {value} |" in text
    assert "first-message" in text

    await stack.client.interrupt(key)
    await stack.client.wait(key, "second-message", timeout=TIMEOUT)

    async def at_rest() -> bool:
        return "**main** · idle" in await details(stack, key)

    await until(at_rest)
    assert "| waiting | 0 |" in await details(stack, key)


async def test_every_activity_says_what_it_is_for(stack: Stack) -> None:
    key = fresh_key("summaries")
    script = '/write {"path": "a", "content": "b"}\n/ls {}\n---\n/no_such_tool {}\n/say done'
    await stack.client.ask(key, script, timeout=TIMEOUT)
    await stack.client.ask(key, "/fail auth 1", timeout=TIMEOUT)
    found = await summaries(stack, key)
    # Tools of one step end in any order.
    assert [*found[:2], *sorted(found[2:4]), *found[4:]] == [
        "open the session",
        "turn 1 · step 1 · main",
        "turn 1 · step 1 · ls",
        "turn 1 · step 1 · write",
        "turn 1 · step 2 · main",
        "turn 1 · step 2 · unknown tool",
        "turn 1 · step 3 · main",
        "turn 2 · step 1 · main",
    ]


async def test_what_a_session_shows_survives_continue_as_new(
    temporal_address: str, tmp_path: Path
) -> None:
    key = fresh_key("shown-on")
    config = "[limits]\nturns_per_run = 2\n"
    async with running_stack(tmp_path, temporal_address, config=config) as short:
        for number in range(5):
            await short.client.ask(key, f"/say {number}", timeout=TIMEOUT)
        assert len(await runs_of(short, key)) > 1
        described = await describe(short, key)
        assert attributes(described) == {
            "PerdureAgent": "main",
            "PerdureKind": "dm",
            "PerdureState": "idle",
        }
        # The SDK cannot hand the static summary on; the current details say the same.
        text = await details(short, key)
        assert "**main** · idle" in text
        assert f"`{key}`" in text


# Needles -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def watched(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[Stack, OpenAIServer, Path]]:
    """A stack, its scripted provider, and the folder of its Temporal server."""
    home = tmp_path_factory.mktemp("watched")
    async with (
        OpenAIServer() as provider,
        server(home / "temporal") as address,
        running_stack(home / "home", address, config=AGENTS, environ=environ(provider)) as running,
    ):
        yield running, provider, home / "temporal"


async def test_nothing_that_was_said_is_in_temporal(
    watched: tuple[Stack, OpenAIServer, Path],
) -> None:
    """Message, answer, tool arguments, tool results, errors of tools and of providers: a needle
    in each, and none of them in any event of any run, any description, or the server's files."""
    stack, provider, folder = watched
    key, needle = fresh_key("needle"), f"needle{time.time_ns()}"
    provider.script(
        calls(("c1", "write", json.dumps({"path": f"{needle}.txt", "content": needle}))),
        calls(
            ("c2", "read", json.dumps({"path": f"{needle}.txt"})),
            ("c3", "read", json.dumps({"path": f"missing-{needle}"})),
            ("c4", "raises", json.dumps({"kind": f"{needle}"})),
            ("c5", "add", json.dumps({"a": needle})),
            ("c6", "add", f"{{not json {needle}"),
            ("c7", f"{needle} no tool", "{}"),
            ("c8", "odd", json.dumps({"kind": needle})),
        ),
        says(f"the answer is {needle}"),
    )
    done = await stack.client.ask(key, f"a question about {needle}", timeout=TIMEOUT)
    assert needle in done.text
    provider.script(fails(400, f"I do not like {needle}"))
    failed = await stack.client.ask(key, f"another about {needle}", timeout=TIMEOUT)
    assert failed.state is TurnState.FAILED
    provider.script(*[fails(500, f"{needle} broke me") for _ in range(2)], says(needle))
    await stack.client.ask(key, f"a third about {needle}", timeout=TIMEOUT)
    provider.script(*[fails(503, f"{needle} broke me") for _ in range(3)])
    exhausted = await stack.client.ask(key, needle, timeout=TIMEOUT)
    assert exhausted.state is TurnState.FAILED
    provider.script(says(needle, needle, pause=2, ending="hang"))
    ticket = await stack.client.send(key, f"interrupt {needle}", label=Label.INTERNAL)
    await stack.client.send(key, f"{needle} waits")

    async def streaming() -> bool:
        steps = await watching.events(stack, key, EventKind.STEP_STARTED)
        return steps[-1].turn == 5

    await until(streaming)
    await stack.client.interrupt(key)
    await stack.client.wait(key, ticket.message_id, timeout=TIMEOUT)
    await stack.client.reset(key)
    await stack.client.close(key)
    provider.script(says(needle))
    await stack.client.ask(key, needle, timeout=TIMEOUT)

    # The store has it all, so the needles were there to be found.
    transcript = await watching.transcript(stack, key)
    assert sum(needle in message.text for message in transcript) >= 15

    assert needle not in await details(stack, key)
    for description in (await describe(stack, key), *await described_runs(stack, key)):
        assert needle not in f"{description.raw_description}"
        assert needle not in f"{await description.static_summary()} {attributes(description)}"
    # What is not in the server's files is in none of its events, whichever API reads them.
    for form in (needle.encode(), base64.b64encode(needle.encode()).rstrip(b"=")[:-2]):
        for file in folder.rglob("*"):
            if file.is_file():
                assert form not in file.read_bytes(), f"{form!r} is in {file.name}"
    raw = [event.SerializeToString() for run in await runs_of(stack, key) for event in run]
    assert raw
    assert not [data for data in raw if needle.encode() in data]


async def described_runs(stack: Stack, key: str) -> list[WorkflowExecutionDescription]:
    """Every run that the visibility store lists for a session."""
    temporal = stack.client.temporal
    return [
        await temporal.get_workflow_handle(execution.id, run_id=execution.run_id).describe()
        async for execution in temporal.list_workflows(f"WorkflowId = '{workflow_id(key)}'")
    ]
