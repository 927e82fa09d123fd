"""What an operator sees of the work: traces, metrics, log lines; and nothing of what is said.

One stack with a collector of traces, a gateway and a worker that serves its metrics. The words that
travel through it are needles, which must turn up in none of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client.parser import text_string_to_metric_families
from ulid import ULID

from activities.post import workflow_id
from perdure.domain.labels import Label
from perdure.domain.states import EventKind
from perdure.telemetry import tracing
from perdure.telemetry.exporting import Exporting
from tests.histories import record
from tests.promises.test_replay import replay
from tests.support import watching
from tests.support.delegating import ask, call, runs, spawn
from tests.support.exchanging import send
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.otlp import Collector, Span, collecting
from tests.support.stack import Stack, fresh_key, running_stack, until

NEEDLE = "quetzalcoatl"
REQUEST = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
_METRICS = re.compile(r"metrics at (http://[^\s\"]+)")
CONFIG = """
[agents.main]
clearance = "RESTRICTED"
[delegation]
steer_inject = true
[limits]
turns_per_run = 1
[observability]
otlp_endpoint = "{url}"
metrics_port = 0
logs = "json"
[[policy.rules]]
id = "no-ls"
hook = "PRE_TOOL_CALL"
priority = 1
when = [{{ field = "tool", op = "equals", value = "ls" }}]
action = "BLOCK"
"""


@dataclass
class Watched:
    """A session that has worked, with all that was told of it."""

    stack: Stack
    gateway: GatewayProcess
    collector: Collector
    key: str
    peer: str

    async def metrics(self, of_worker: bool = True) -> dict[tuple[str, ...], float]:
        """The samples of a process now, by name and the values of their labels (by name)."""
        url = f"{self.gateway.url}/metrics"
        if of_worker:
            *_, url = _METRICS.findall((self.stack.home / "worker.log").read_text())
        async with httpx2.AsyncClient() as client:
            told = await client.get(url)
        assert told.status_code == 200
        return {
            (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
            for family in text_string_to_metric_families(told.text)
            for sample in family.samples
        }


@pytest.fixture(scope="module")
async def watched(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Watched]:
    """One request: a tool, a child, a peer that is asked, and an answer."""
    home = tmp_path_factory.mktemp("watched")
    with collecting() as collector:
        environ = {"OTEL_BSP_SCHEDULE_DELAY": "200"}
        config = CONFIG.format(url=collector.url)
        async with (
            running_stack(home, temporal_address, config=config, environ=environ) as stack,
            running_gateway(stack) as gateway,
        ):
            key, peer = fresh_key("watched"), fresh_key("peer")
            lines = [
                call("write", path=f"{NEEDLE}.txt", content=NEEDLE),
                "---",
                spawn(f"/say {NEEDLE}"),
                send(peer, f"/say {NEEDLE}", mode="wait"),
                "---",
                "/fail rate_limit 1",
                f"/say {NEEDLE}",
            ]
            await stack.client.ask(peer, "/say ready", timeout=60)
            async with gateway.client() as client:
                answered = await client.post(
                    f"/v1/sessions/{key}/messages",
                    json={"text": "\n".join(lines), "wait": True},
                    headers={"traceparent": f"00-{REQUEST[0]}-{REQUEST[1]}-01"},
                )
                assert answered.status_code < 300, answered.text
            down = [send(peer, f"/say {NEEDLE}"), call("ls"), "---", "/fail auth 1"]
            await ask(stack, key, *down, label=Label.INTERNAL)
            yield Watched(stack, gateway, collector, key, peer)


def one(spans: list[Span]) -> Span:
    (span,) = spans
    return span


async def test_a_turn_is_one_trace_that_links_to_what_caused_it(watched: Watched) -> None:
    collector, key, peer = watched.collector, watched.key, watched.peer
    (run,) = await runs(watched.stack, key)
    child = run.session_key

    async def told() -> bool:
        told = {each: len(collector.of(each, "invoke_agent")) for each in (key, child, peer)}
        return told == {key: 2, child: 1, peer: 2}

    await until(told)
    root, refused = sorted(
        collector.of(key, "invoke_agent"), key=lambda span: span.attributes["perdure.turn"]
    )
    of_turn = [span for span in collector.spans if span.trace == root.trace and span != root]
    steps = [span for span in of_turn if span.name == "step"]
    calls = [span for span in of_turn if span.name.startswith("execute_tool")]
    models = [span for span in of_turn if span.name == "chat rehearsal"]
    assert {span.parent for span in steps + calls} == {root.id}
    assert sorted(span.parent for span in models) == sorted(span.id for span in steps)
    assert len(steps) == 4
    assert [(step.failed, step.attributes["perdure.attempt"]) for step in steps[2:]] == [
        (True, 1),
        (False, 2),
    ]
    tools = {span.attributes["gen_ai.tool.name"] for span in calls}
    assert tools == {"write", "sessions_spawn", "sessions_send"}
    for span in models:
        assert span.failed or span.attributes["gen_ai.usage.input_tokens"] > 0
    assert len(steps + calls + models) == len(of_turn)

    request = one([span for span in collector.spans if span.name.startswith("POST")])
    admitted = one(collector.of(key, "admit"))
    assert request.name == "POST /v1/sessions/{key}/messages"
    assert (request.trace, request.parent) == REQUEST
    assert (admitted.trace, admitted.parent) == (request.trace, request.id)
    assert root.links == ((admitted.trace, admitted.id),)
    assert one(collector.of(child, "invoke_agent")).links == ((root.trace, root.id),)
    asked = collector.of(watched.peer, "invoke_agent")[1]
    sending = [span.id for span in calls if span.name == "execute_tool sessions_send"]
    assert (asked.links[0][0], asked.links[0][1] in sending) == (root.trace, True)
    assert (refused.failed, refused.attributes["error.type"]) == (True, "denied")


async def test_metrics_tell_what_an_operator_alerts_on(watched: Watched) -> None:
    worker = await watched.metrics()
    assert worker["perdure_turns_total", "main", "completed"] == 4
    assert worker["perdure_turns_total", "main", "failed"] == 1
    assert worker["perdure_tool_calls_total", "ok", "write"] == 1
    assert worker["perdure_tool_calls_total", "error", "ls"] == 1
    assert worker["perdure_rate_limit_waits_total", "main"] == 1
    assert worker["perdure_rate_limit_wait_seconds_total", "main"] > 0
    assert worker["perdure_activity_retries_total", "take_step"] == 1
    assert worker["perdure_step_seconds_count", "main"] >= 7
    assert worker["perdure_model_seconds_count", "rehearsal", "ok"] >= 6
    assert worker["perdure_model_tokens_total", "main", "input", "rehearsal"] > 0
    assert worker["perdure_policy_decisions_total", "rule:no-ls", "BLOCK", "PRE_TOOL_CALL"] == 1
    assert sum(it for name, it in worker.items() if name[0] == "perdure_label_refusals_total") >= 1
    gateway = await watched.metrics(of_worker=False)
    route = "/v1/sessions/{key}/messages"
    assert gateway["perdure_http_requests_total", "POST", route, "200"] == 1
    for process in (worker, gateway):
        assert process["perdure_waiting_messages",] == 0
        assert process["perdure_approvals_pending",] == 0


async def test_nothing_that_is_said_is_told(watched: Watched) -> None:
    worker, gateway = (watched.stack.home / f"{name}.log" for name in ("worker", "gateway"))
    metrics = [await watched.metrics(), await watched.metrics(of_worker=False)]
    for told in (watched.collector.raw, worker.read_bytes(), gateway.read_bytes()):
        assert NEEDLE.encode() not in told
    assert b"INTERNAL" not in watched.collector.raw
    names = " ".join(" ".join(sample) for each in metrics for sample in each)
    for word in (NEEDLE, watched.key, "INTERNAL", "default:"):
        assert word not in names


async def test_log_lines_tell_where_they_belong(watched: Watched) -> None:
    log = watched.stack.home / "worker.log"
    handle = watched.stack.client.temporal.get_workflow_handle(workflow_id(watched.peer))
    await handle.signal("deliver", "no envelope")

    async def lines_of(event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        return [line for line in lines if line["event"].startswith(event)]

    *_, refused = await lines_of("the step was refused")
    assert (refused["session"], refused["turn"], refused["step"]) == (watched.key, 2, 2)
    turns = {span.trace for span in watched.collector.of(watched.key, "invoke_agent")}
    assert refused["trace"] in turns

    async def dropped() -> bool:
        return bool(await lines_of("dropped a signal"))

    await until(dropped)
    (line,) = await lines_of("dropped a signal")
    assert (line["session"], line["level"]) == (watched.peer, "warning")


async def test_a_request_is_found_in_the_log_by_the_id_it_was_answered_with(
    watched: Watched,
) -> None:
    async with watched.gateway.client() as client:
        given = await client.get("/healthz", headers={"X-Request-ID": "of-the-proxy"})
        made = await client.get("/healthz", headers={"X-Request-ID": "no id: {}"})
    assert given.headers["X-Request-ID"] == "of-the-proxy"
    assert ULID.from_str(made.headers["X-Request-ID"])


async def test_a_message_that_joins_a_turn_is_linked_from_its_step(watched: Watched) -> None:
    stack, collector, key = watched.stack, watched.collector, fresh_key("steered")
    await ask(stack, key, spawn("/sleep 2", call("glob", pattern="*"), "---", "/say x", later=True))
    (run,) = await runs(stack, key)
    async with watched.gateway.client() as client:
        steered = await client.post(f"/v1/runs/{run.run_id}/steer", json={"text": "/say y"})
        assert steered.status_code == 200, steered.text

    async def told() -> bool:
        return bool(collector.of(run.session_key, "invoke_agent"))

    await until(told)
    linked = one([span for span in collector.of(run.session_key, "step") if span.links])
    request = one([span for span in collector.spans if span.name.endswith("/steer")])
    assert linked.attributes["perdure.step"] == 2
    assert linked.links == ((request.trace, request.id),)


async def test_a_turn_that_outlives_its_worker_and_its_workflow_stays_in_one_trace(
    watched: Watched,
) -> None:
    """The worker is killed in a model call while another message waits, whose turn comes after the
    workflow has continued as new."""
    stack, collector, key = watched.stack, watched.collector, fresh_key("outlived")
    async with watched.gateway.client() as client:
        for text in ("/sleep 2\n/say one", "/say two"):
            sent = await client.post(f"/v1/sessions/{key}/messages", json={"text": text})
            assert sent.status_code < 300
    await watching.event(stack, key, EventKind.STEP_STARTED)
    stack.worker.kill()
    stack.worker.start()

    async def told() -> bool:
        return len(collector.of(key, "invoke_agent")) == 2

    await until(told)
    first, second = collector.of(key, "invoke_agent")
    admitted = collector.of(key, "admit")
    assert [first.links, second.links] == [((each.trace, each.id),) for each in admitted]
    step = one([each for each in collector.of(key, "step") if each.trace == first.trace])
    assert (step.parent, step.attributes["perdure.attempt"] > 1) == (first.id, True)
    started = (await watching.history(stack, key))[0].workflow_execution_started_event_attributes
    assert started.continued_execution_run_id


async def test_a_replay_makes_no_span() -> None:
    """Workflow code makes none: what is replayed with traces on is what was recorded without."""
    exported = InMemorySpanExporter()
    tracing.use(Exporting(SimpleSpanProcessor(exported), "test", "default"))
    try:
        await replay((record.FOLDER / "spawned.1.json").read_text())
    finally:
        tracing.stop()
    assert exported.get_finished_spans() == ()
