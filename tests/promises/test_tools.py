"""Tool calls: whatever a model asks for and whatever comes of it, the model reads a result.

A result of any size leaves the session alive, a refused call is a result and not a retry, and no
session's files are another's.
"""

from __future__ import annotations

import json

from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import Replayer

from activities.post import workflow_id
from perdure.domain.states import EventKind, TurnState
from tests.support import user_tools, watching
from tests.support.openai_server import OpenAIServer, calls, says
from tests.support.stack import Stack, fresh_key
from worker import workflow_runner
from workflows.session import Session

TIMEOUT = 60


async def ask_for(
    models: Stack, provider: OpenAIServer, key: str, *called: tuple[str, str]
) -> None:
    """One turn in which the model makes these calls, of a tool each with its arguments."""
    named = [(f"call-{index}", name, text) for index, (name, text) in enumerate(called)]
    provider.script(calls(*named), says("done"))
    result = await models.client.ask(key, "go", timeout=TIMEOUT)
    assert (result.state, result.text) == (TurnState.COMPLETED, "done")


async def test_a_two_megabyte_result_is_cut_and_the_rest_can_be_read_byte_for_byte(
    models: Stack, provider: OpenAIServer
) -> None:
    """Promise 2, for a user's tool."""
    key = fresh_key("huge")
    assert len(user_tools.HUGE) > 2_100_000
    await ask_for(models, provider, key, ("huge", "{}"))

    (seen,) = [m["content"] for m in provider.requests[1].messages if m["role"] == "tool"]
    assert len(seen.encode()) <= models.settings.limits.tool_result_bytes
    assert f"cut: this result has {len(user_tools.HUGE)} bytes" in seen
    assert seen.startswith("line 000000")
    assert seen.endswith("x\n")
    path = seen.partition('path="')[2].partition('"')[0]

    lines = user_tools.HUGE.count("\n")
    ranges = [
        {"path": path, "start_line": first, "end_line": min(first + 499, lines)}
        for first in range(1, lines + 1, 500)
    ]
    await ask_for(models, provider, key, *(("read", json.dumps(range_)) for range_ in ranges))

    windows = [json.loads(result) for result in (await watching.results(models, key))[1:]]
    assert not any(window["truncated"] for window in windows)
    assert "".join(window["content"] for window in windows) == user_tools.HUGE
    assert await watching.history_bytes(models, key) < 200_000


async def test_reading_and_searching_a_two_megabyte_file_says_what_is_left_out(
    models: Stack, provider: OpenAIServer
) -> None:
    """Promise 2, for the file tools."""
    key = fresh_key("file")
    await ask_for(models, provider, key, ("write", '{"path": "big.txt", "content": ""}'))
    (watching.workspace(models, key) / "big.txt").write_text(user_tools.HUGE)

    await ask_for(
        models,
        provider,
        key,
        ("read", '{"path": "big.txt"}'),
        ("grep", '{"pattern": "line"}'),
    )

    _, read, grep = await watching.results(models, key)
    limit = models.settings.limits.tool_result_bytes
    assert len(read.encode()) <= limit
    assert len(grep.encode()) <= limit
    window, found = json.loads(read), json.loads(grep)
    assert window["truncated"]
    assert window["total_lines"] == user_tools.HUGE.count("\n")
    assert user_tools.HUGE.startswith(window["content"])
    assert found["truncated"]
    assert found["total"] == user_tools.HUGE.count("\n")

    rest = json.dumps({"path": "big.txt", "start_line": window["end_line"] + 1, "end_line": 600})
    await ask_for(models, provider, key, ("read", rest))
    more = json.loads((await watching.results(models, key))[-1])
    assert user_tools.HUGE.startswith(window["content"] + more["content"])


async def test_arguments_that_cannot_be_used_are_errors_the_model_reads_once(
    models: Stack, provider: OpenAIServer
) -> None:
    """Promise 3: not one of them is tried again."""
    key = fresh_key("arguments")
    refused = {
        "no JSON": ("add", '{"a": 1'),
        "a list": ("add", "[1, 2]"),
        "not a number": ("add", '{"a": NaN}'),
        "infinite": ("add", '{"a": 1e999}'),
        "wrong type": ("add", '{"a": "three"}'),
        "missing": ("add", "{}"),
        "unknown": ("add", '{"a": 1, "colour": "red"}'),
        "half a character": ("write", '{"path": "x", "content": "\\ud83d"}'),
        "NUL": ("write", '{"path": "x", "content": "\\u0000"}'),
        "no such tool": ("fly", "{}"),
        "no tool's name": ("rm -rf / ; " + "x" * 500, "{}"),
    }
    await ask_for(models, provider, key, *refused.values())

    results = await watching.results(models, key)
    codes = dict(zip(refused, map(watching.code_of, results), strict=True))
    assert codes == dict.fromkeys(refused, "invalid_argument")
    assert "colour" in results[6]
    assert "Tools are" in results[9]
    assert set(await watching.attempts(models, key, "run_tool")) == {1}
    assert len(provider.requests) == 2
    provider.script(says("still here"))
    assert (await models.client.ask(key, "and?", timeout=TIMEOUT)).text == "still here"


async def test_a_tool_that_raises_anything_is_an_error_in_its_own_words(
    models: Stack, provider: OpenAIServer
) -> None:
    """Not one of them is tried again, and the worker outlives them all."""
    key = fresh_key("raises")
    words = {
        "value": "ValueError: the value is wrong",
        "timeout": "TimeoutError: the printer did not answer",
        "stop": "StopIteration",
        "exit": "SystemExit",
        "keyboard": "KeyboardInterrupt",
        "cancelled": "CancelledError",
        "long": "ValueError: xxx",
        "surrogate": "ValueError: half ?",
    }
    called = [(name, kind) for name in ("raises", "raises_async") for kind in words]
    await ask_for(
        models, provider, key, *((name, json.dumps({"kind": kind})) for name, kind in called)
    )

    results = await watching.results(models, key)
    for (_, kind), result in zip(called, results, strict=True):
        assert watching.code_of(result) == "unavailable"
        assert words[kind] in result
        assert len(result) < 3_000
    assert [claim.status for claim in await watching.claim_rows(models, key)] == ["error"] * 16
    assert await watching.attempts(models, key, "run_tool") == [1] * 16
    assert models.worker.process is not None
    assert models.worker.process.poll() is None


async def test_a_result_that_cannot_be_written_is_an_error_and_an_odd_one_is_written(
    models: Stack, provider: OpenAIServer
) -> None:
    """Promise 3, for what comes back."""
    key = fresh_key("odd")
    expected = {
        "cyclic": "it contains itself",
        "nan": "it holds NaN or infinity",
        "object": "cannot be written as JSON",
        "bytes": '"_wA="',
        "surrogate": "half ?",
        "nothing": "null",
        "empty": "",
    }
    await ask_for(
        models, provider, key, *(("odd", json.dumps({"kind": kind})) for kind in expected)
    )

    results = await watching.results(models, key)
    for kind, result in zip(expected, results, strict=True):
        assert expected[kind] in result
    statuses = [claim.status for claim in await watching.claim_rows(models, key)]
    assert statuses == ["error"] * 3 + ["ok"] * 4
    assert await watching.attempts(models, key, "run_tool") == [1] * 7


async def test_parallel_tools_finish_in_any_order_and_their_results_stand_in_call_order(
    models: Stack, provider: OpenAIServer
) -> None:
    """Promise 15: in the transcript, in the next model call, and again in a replay."""
    key = fresh_key("parallel")
    names = ["late", "add", "late", "early"]
    await ask_for(
        models, provider, key, *((name, '{"a": 1}' if name == "add" else "{}") for name in names)
    )

    completed = await watching.events(models, key, EventKind.TOOL_COMPLETED)
    finished = [event.payload["call"] for event in completed]
    # The late ones wait until the early one, called last, has opened the gate.
    assert finished.index(1) < min(finished.index(0), finished.index(2))
    assert await watching.results(models, key) == ["late", "2", "late", "early"]
    sent = [m for m in provider.requests[1].messages if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in sent] == [f"call-{index}" for index in range(4)]
    assert [m["content"] for m in sent] == ["late", "2", "late", "early"]

    replayer = Replayer(
        workflows=[Session],
        data_converter=pydantic_data_converter,
        workflow_runner=workflow_runner(),
    )
    history = WorkflowHistory(workflow_id(key), await watching.history(models, key))
    await replayer.replay_workflow(history)


async def test_no_session_sees_another_ones_files_and_no_path_leads_out(
    models: Stack, provider: OpenAIServer
) -> None:
    mine, theirs = fresh_key("mine"), fresh_key("theirs")
    secret = '{"path": "secret.txt", "content": "theirs alone"}'
    await ask_for(models, provider, theirs, ("write", secret))
    await ask_for(models, provider, mine, ("write", '{"path": "own.txt", "content": "mine"}'))
    their_folder = watching.workspace(models, theirs)
    my_folder = watching.workspace(models, mine)
    (my_folder / "link").symlink_to(their_folder)
    (my_folder / "file-link").symlink_to(their_folder / "secret.txt")

    out = [
        f"../{their_folder.name}/secret.txt",
        f"x/../../{their_folder.name}/secret.txt",
        str(their_folder / "secret.txt"),
        "link/secret.txt",
        "file-link",
        "/etc/passwd",
    ]
    escapes = [("read", {"path": path}) for path in out]
    escapes += [("write", {"path": path, "content": "gone"}) for path in out]
    escapes += [("edit", {"path": path, "old": "theirs", "new": "mine"}) for path in out]
    escapes += [("ls", {"path": path}) for path in ("..", "/", "link")]
    escapes += [("grep", {"pattern": "alone", "path": path}) for path in ("..", "/", "link")]
    await ask_for(
        models, provider, mine, *((name, json.dumps(arguments)) for name, arguments in escapes)
    )

    _, *refusals = await watching.results(models, mine)
    assert [watching.code_of(refusal) for refusal in refusals] == ["denied"] * len(escapes)
    assert (their_folder / "secret.txt").read_text() == "theirs alone"

    await ask_for(models, provider, mine, ("ls", "{}"), ("grep", '{"pattern": "alone"}'))
    *_, listing, found = await watching.results(models, mine)
    names = [entry["name"] for entry in json.loads(listing)["entries"]]
    assert names == ["file-link", "link", "own.txt"]
    assert json.loads(found)["total"] == 0
    assert "theirs alone" not in json.dumps([request.body for request in provider.requests[4:]])
