"""With a key, nothing that is said in Temporal can be read there, and keys can be changed.

The histories are read raw, as the server keeps them. Every stage is a worker of its own, on the
same home and queue.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import httpx2
import pytest
from google.protobuf import json_format
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload, SearchAttributes, WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.workflowservice.v1 import QueryWorkflowRequest
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.contrib.pydantic import pydantic_data_converter

from activities.post import workflow_id
from gateway.codec import ENCODING, KEY_ID
from gateway.local.temporal import find_binary
from perdure.domain.envelopes import Envelope
from perdure.domain.states import TurnState
from perdure.encryption import new_key
from tests.support import watching
from tests.support.delegating import ask, call, runs, spawn
from tests.support.gateway import running_gateway
from tests.support.stack import Stack, fresh_key, running_stack, until
from workflows.session import Session

Found = TypeVar("Found", bound=Message)
UI = "http://ui.example:8233"


class Home:
    """A home whose encryption is set anew for each stage."""

    def __init__(self, home: Path, address: str) -> None:
        self.home, self._address = home, address
        self._queue = f"sealed-{time.time_ns()}"
        self._keys = {name: home / f"{name}.key" for name in ("k1", "k2")}
        for file in self._keys.values():
            file.write_text(new_key())

    @asynccontextmanager
    async def stage(self, *keys: str, refuse_clear: bool = False) -> AsyncIterator[Stack]:
        """A stack with these keys, of which the last one is active."""
        lines = ["[limits]", "turns_per_run = 2", "[temporal.encryption]"]
        lines.append(f"refuse_clear = {json.dumps(refuse_clear)}")
        lines.append(f'ui_origins = ["{UI}"]')
        lines += [f'active = "{key}"' for key in keys[-1:]]
        lines.append("[temporal.encryption.keys]")
        lines += [f'{key} = "{self._keys[key]}"' for key in keys]
        environ = {"PERDURE_TEMPORAL_QUEUE": self._queue}
        config = "\n".join(lines)
        async with running_stack(self.home, self._address, config=config, environ=environ) as stack:
            yield stack


@pytest.fixture
def home(tmp_path: Path, temporal_address: str) -> Home:
    return Home(tmp_path, temporal_address)


@pytest.fixture(scope="module")
async def sealed(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    """A stack under one key, that takes nothing in clear."""
    home = Home(tmp_path_factory.mktemp("sealed"), temporal_address)
    async with home.stage("k1", refuse_clear=True) as stack:
        yield stack


async def chain(stack: Stack, key: str) -> list[HistoryEvent]:
    """Every event of every run of a session's workflow."""
    handle = stack.client.temporal.get_workflow_handle(workflow_id(key))
    events = list((await handle.fetch_history()).events)
    while True:
        before = events[0].workflow_execution_started_event_attributes.continued_execution_run_id
        if not before:
            return events
        handle = stack.client.temporal.get_workflow_handle(workflow_id(key), run_id=before)
        events = [*(await handle.fetch_history()).events, *events]


def payloads(message: Message) -> Iterator[Payload]:
    """Every payload in a message, but for search attributes."""
    return of_type(message, Payload)


def of_type(message: Message, kind: type[Found]) -> Iterator[Found]:
    """Every message of a kind in a message, but for those in search attributes."""
    if isinstance(message, kind):
        yield message
    if not isinstance(message, SearchAttributes):
        for field, value in message.ListFields():
            if field.type != field.TYPE_MESSAGE:
                continue
            if field.message_type.GetOptions().map_entry:
                inner = [one for one in value.values() if isinstance(one, Message)]
            else:
                inner = list(value) if field.is_repeated else [value]
            for one in inner:
                yield from of_type(one, kind)


async def current_details(stack: Stack, key: str) -> list[Payload]:
    """What the Temporal UI is told when it asks what a session is doing now."""
    asked = QueryWorkflowRequest(
        namespace=stack.client.temporal.namespace,
        execution=WorkflowExecution(workflow_id=workflow_id(key)),
        query=WorkflowQuery(query_type="__temporal_workflow_metadata"),
    )
    answer = await stack.client.temporal.workflow_service.query_workflow(asked)
    return list(answer.query_result.payloads)


def keys_of(events: list[HistoryEvent]) -> list[str]:
    """The key of each payload, in order; empty where it is clear."""
    return [
        payload.metadata[KEY_ID].decode() if payload.metadata["encoding"] == ENCODING else ""
        for event in events
        for payload in payloads(event)
        if not payload.data.startswith(b'{"seq":')  # the SDK core's own note on a local activity
    ]


async def test_nothing_can_be_read_in_temporal_but_by_those_who_may(sealed: Stack) -> None:
    key, needle = fresh_key("sealed"), "quetzal"
    await ask(sealed, key, call("write", path=f"{needle}.txt", content=needle))
    await ask(sealed, key, spawn(f"/say {needle}", "---", call("ls")), f"/say {needle} {{{{1}}}}")
    await ask(sealed, key, "/fail rate_limit 1", f"/say {needle}")
    failed = await ask(sealed, key, "/fail auth 1", message_id=f"{needle}-message")
    assert failed.state is TurnState.FAILED
    await ask(sealed, key, f"/say {needle}")
    await until(lambda: watching.at_rest(sealed, key))
    (run,) = await runs(sealed, key)
    events = await chain(sealed, key) + await chain(sealed, run.session_key)
    starts = [e for e in events if e.HasField("workflow_execution_started_event_attributes")]
    assert len(starts) >= 3, "it has continued as new"
    assert set(keys_of(events)) == {"k1"}
    kept = [failure for event in events for failure in of_type(event, Failure)]
    assert {(failure.message, failure.stack_trace) for failure in kept} == {("Encoded failure", "")}
    assert {payload.metadata["encoding"] for payload in await current_details(sealed, key)} == {
        ENCODING
    }
    # Ids of workflows and names of types stay; what the summaries say does not.
    raw = b"".join(event.SerializeToString() for event in events)
    for word in (needle, "quetzal.txt", "turn 1", " · step ", "open the", "INTERNAL", "PUBLIC"):
        assert word.encode() not in raw, word

    summary = base64.b64encode(b'"open the session"').decode()
    async with running_gateway(sealed) as gateway:
        assert summary in cli(sealed, key, "--codec-endpoint", f"{gateway.url}/codec")
        assert summary not in cli(sealed, key)
        await only_the_ui_may_ask(gateway.client(), events)
        assert re.search(r"opened 1 payloads.*caller=\S+ request=\w{26}", gateway.log)


async def only_the_ui_may_ask(client: httpx2.AsyncClient, events: list[HistoryEvent]) -> None:
    """A web page of the configured origin may have payloads opened, another may not."""
    sealed = next(payload for event in events for payload in payloads(event))
    body = {"payloads": [json_format.MessageToDict(sealed)]}
    async with client:
        asked = {"Origin": UI, "Access-Control-Request-Method": "POST"}
        preflight = await client.options("/codec/decode", headers=asked)
        assert preflight.headers["access-control-allow-origin"] == UI
        assert "Authorization" in preflight.headers["access-control-allow-headers"]
        opened = await client.post("/codec/decode", json=body, headers={"Origin": UI})
        assert opened.headers["access-control-allow-origin"] == UI
        (payload,) = opened.json()["payloads"]
        assert base64.b64decode(payload["metadata"]["encoding"]) == b"json/plain"
        for path, origin in (("/codec/decode", "http://elsewhere:1"), ("/v1/sessions", UI)):
            refused = await client.post(path, json=body, headers={"Origin": origin})
            assert refused.status_code == 403
            assert "access-control-allow-origin" not in refused.headers
        sealed.metadata[KEY_ID] = b"k9"
        unknown = {"payloads": [json_format.MessageToDict(sealed)]}
        refused = await client.post("/codec/decode", json=unknown)
        assert (refused.status_code, "'k9'" in refused.json()["detail"]) == (400, True)


async def test_keys_change_under_a_session_that_goes_on(home: Home) -> None:
    """Encryption is switched on in the middle of a conversation, and its key is changed. While
    the old key is missing, what waits is told so in clear, and goes on once it is back."""
    key, words = fresh_key("rotated"), "/say third"
    async with home.stage() as stack:
        await ask(stack, key, "/say first")
    async with home.stage("k1") as stack:
        await ask(stack, key, call("ls"), "/say second")
        await until(lambda: watching.at_rest(stack, key))
        assert list(dict.fromkeys(keys_of(await chain(stack, key)))) == ["", "k1"]
    async with home.stage("k2") as stack:
        envelope = Envelope(message_id="m-3")
        await stack.client.store.mailbox.post(key, envelope, words)
        handle = stack.client.temporal.get_workflow_handle(workflow_id(key))
        await handle.signal(Session.deliver, envelope)
        failed = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
        await until(lambda: has(stack, key, failed))
        told = [e for e in await watching.history(stack, key) if e.event_type == failed]
        message = told[0].workflow_task_failed_event_attributes.failure.message
        assert "under the key 'k1', which is not here (keys here: k2)" in message
    async with home.stage("k1", "k2") as stack:
        answer = await ask(stack, key, words, message_id="m-3")
        assert (answer.text, answer.turn) == ("third", 3)
        await until(lambda: watching.at_rest(stack, key))
        found = keys_of(await chain(stack, key))
        assert list(dict.fromkeys(found)) == ["", "k1", "k2"], "no key came back once replaced"


async def has(stack: Stack, key: str, kind: EventType.ValueType) -> bool:
    return any(event.event_type == kind for event in await watching.history(stack, key))


async def test_what_comes_in_clear_is_dropped_where_clear_payloads_are_refused(
    sealed: Stack,
) -> None:
    """It may be forged: it says nothing to the session, and does not stop it either."""
    key = fresh_key("refusing")
    await ask(sealed, key, "/say one")
    config = sealed.client.temporal.config()
    config["data_converter"] = pydantic_data_converter
    forger = Client(**config).get_workflow_handle(workflow_id(key))
    await forger.signal("deliver", {"message_id": "forged", "label": "PUBLIC"})
    with pytest.raises(WorkflowUpdateFailedError):
        await forger.execute_update("reset", "forged")
    assert (await ask(sealed, key, "/say two")).turn == 2
    handle = sealed.client.temporal.get_workflow_handle(workflow_id(key))
    assert await handle.query(Session.inbox) == []
    assert not await has(sealed, key, EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED)


def cli(stack: Stack, key: str, *options: str) -> str:
    address = stack.settings.temporal.address
    argv = [find_binary(), "workflow", "show", "--address", str(address), "-w", workflow_id(key)]
    argv += ["--output", "json", *options]
    environ = {"HOME": str(stack.home), "PATH": os.environ["PATH"]}
    return subprocess.run(argv, capture_output=True, text=True, check=True, env=environ).stdout
