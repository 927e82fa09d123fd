"""Refusals over HTTP: always a problem detail, never a traceback, and only this machine may ask."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.http.description import SHAPED
from gateway.http.messages import NewMessage
from gateway.http.problems import STATUS, Problem
from perdure.domain.errors import Code
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.processes import eventually
from tests.support.stack import Stack, fresh_key, running_stack

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
async def gateway(stack: Stack) -> AsyncIterator[GatewayProcess]:
    async with running_gateway(stack, "refusals") as gateway:
        yield gateway


@pytest.fixture(scope="module")
async def http(gateway: GatewayProcess) -> AsyncIterator[httpx2.AsyncClient]:
    async with gateway.client() as client:
        yield client


def problem_of(response: httpx2.Response) -> Problem:
    assert response.headers["content-type"] == "application/problem+json"
    told = Problem.model_validate_json(response.content)
    assert told.status == response.status_code
    assert "Traceback" not in response.text
    return told


@pytest.mark.parametrize(
    ("body", "status", "told"),
    [
        ({}, 422, "body.text"),
        ({"text": None}, 422, "body.text"),
        ({"text": 7}, 422, "body.text"),
        ({"text": ""}, 400, "empty"),
        ({"text": " \n"}, 400, "empty"),
        ({"text": "x", "sender": "root"}, 422, "body.sender"),
        ({"text": "x", "\ud800": 1}, 422, "unicode"),
        ({"text": "x", "k" * 100_000: 1}, 422, "body.kkk"),
        ({"text": "x", **{f"k{n}": n for n in range(1_000)}}, 422, "body.k0"),
        ({"text": "\ud800"}, 400, "not valid Unicode"),
        ({"text": "x", "label": "SECRET"}, 422, "'PUBLIC', 'INTERNAL'"),
        ({"text": "x", "label": "RESTRICTED"}, 403, "clearance"),
        ({"text": "x", "agent": "nobody"}, 400, "There is no agent 'nobody'"),
        ({"text": "x", "wait": "perhaps"}, 422, "body.wait"),
        ({"text": "x", "wait": True, "timeout": -1}, 422, "body.timeout"),
        ({"text": "x", "wait": True, "timeout": 1e12}, 422, "body.timeout"),
        ({"text": "x", "timeout": float("nan")}, 422, "body.timeout"),
        ({"text": "x", "timeout": float("inf")}, 422, "body.timeout"),
        ([], 422, "body"),
        (None, 422, "body"),
        ("text", 422, "body"),
    ],
)
async def test_a_wrong_message_is_told_what_is_wrong(
    http: httpx2.AsyncClient, body: Any, status: int, told: str
) -> None:
    key = fresh_key("wrong")
    content = json.dumps(body)
    refused = await http.post(f"/v1/sessions/{key}/messages", content=content, headers=JSON)
    problem = problem_of(refused)
    assert problem.status == status
    assert told in problem.detail
    assert len(refused.content) < 10_000
    assert (await http.get(f"/v1/sessions/{key}")).status_code == 404


@pytest.mark.parametrize(
    ("content", "headers", "status", "told"),
    [
        (b'{"text":', JSON, 400, "not JSON"),
        (b'{"text":"\xff"}', JSON, 400, "not UTF-8"),
        (b"", JSON, 422, "body"),
        (b"[" * 100_000, JSON, 400, "nested too deep"),
        (b'{"text":' + b"9" * 5_000 + b"}", JSON, 400, "endless number"),
        (b'{"text":"x"}', {}, 415, "not declared as JSON"),
        (b'{"text":"x"}', {"content-type": "text/plain"}, 415, "not declared as JSON"),
        (b"text=x", {"content-type": "application/x-www-form-urlencoded"}, 415, "JSON"),
        (b'{"text":"x"}', JSON | {"idempotency-key": "a b"}, 400, "message id"),
        (b'{"text":"x"}', JSON | {"idempotency-key": "x" * 129}, 400, "message id"),
        (b'{"text":"x"}', JSON | {"idempotency-key": "ans_1"}, 400, "message id"),
        (b'{"text":"x"}', JSON | {"idempotency-key": ""}, 400, "message id"),
    ],
)
async def test_a_wrong_request_is_told_what_is_wrong(
    http: httpx2.AsyncClient, content: bytes, headers: dict[str, str], status: int, told: str
) -> None:
    path = f"/v1/sessions/{fresh_key('request')}/messages"
    refused = await http.post(path, content=content, headers=headers)
    problem = problem_of(refused)
    assert problem.status == status
    assert told in problem.detail


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/sessions/bob", 400, "invalid_argument"),
        ("GET", "/v1/sessions/default:b%00b", 400, "invalid_argument"),
        ("GET", "/v1/sessions/default:%FF", 400, "invalid_argument"),
        ("GET", "/v1/sessions/default:b%2525", 400, "invalid_argument"),
        ("GET", "/v1/sessions/default:" + "b" * 600, 400, "invalid_argument"),
        ("GET", "/v1/sessions/default:nobody", 404, "not_found"),
        ("GET", "/v1/sessions/default:nobody/messages", 404, "not_found"),
        ("GET", "/v1/sessions/default:nobody/turns/m", 404, "not_found"),
        ("GET", "/v1/sessions/default:nobody/turns/m%20m", 400, "invalid_argument"),
        ("POST", "/v1/sessions/default:nobody/interrupt", 404, "not_found"),
        ("POST", "/v1/sessions/default:nobody/reset", 404, "not_found"),
        ("DELETE", "/v1/sessions/default:nobody", 404, "not_found"),
        ("GET", "/v1/sessions/default:nobody/messages?limit=0", 422, "invalid_argument"),
        ("GET", "/v1/sessions/default:nobody/messages?limit=201", 422, "invalid_argument"),
        ("GET", "/v1/sessions/default:nobody/messages?offset=-1", 422, "invalid_argument"),
        ("GET", f"/v1/sessions?offset={10**30}", 422, "invalid_argument"),
        ("GET", "/v1/sessions?since_minutes=1e300", 422, "invalid_argument"),
        ("GET", "/v1/sessions?since_minutes=nan", 422, "invalid_argument"),
        ("GET", "/v1/sessions?kind=group-chat", 422, "invalid_argument"),
        ("GET", "/v1/sessions/", 404, "not_found"),
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/docs", 404, "not_found"),
        ("PUT", "/v1/sessions", 405, "invalid_argument"),
        ("OPTIONS", "/v1/sessions", 405, "invalid_argument"),
    ],
)
async def test_a_wrong_path_is_told_what_is_wrong(
    http: httpx2.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    problem = problem_of(await http.request(method, path))
    assert (problem.status, problem.code) == (status, code)
    assert problem.detail


async def test_another_agent_than_the_sessions_is_a_conflict(http: httpx2.AsyncClient) -> None:
    path = f"/v1/sessions/{fresh_key('agent')}/messages"
    asked = {"text": "/say x", "wait": True}
    assert (await http.post(path, json=asked)).status_code == 200
    problem = problem_of(await http.post(path, json={**asked, "agent": "other"}))
    assert (problem.status, problem.code) == (409, "conflict")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::2]", "a@localhost"],
)
async def test_a_request_for_another_host_is_refused(http: httpx2.AsyncClient, host: str) -> None:
    problem = problem_of(await http.get("/healthz", headers={"host": host}))
    assert (problem.status, problem.code) == (403, "denied")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1", "[::1]:8080"])
async def test_every_name_of_the_loopback_is_served(http: httpx2.AsyncClient, host: str) -> None:
    assert (await http.get("/healthz", headers={"host": host})).status_code == 200


async def test_a_web_page_from_elsewhere_can_neither_read_nor_change(
    http: httpx2.AsyncClient, gateway: GatewayProcess
) -> None:
    key = fresh_key("page")
    await http.post(f"/v1/sessions/{key}/messages", json={"text": "/say x", "wait": True})
    for origin in ("https://evil.example", "http://localhost:1", "null"):
        headers = {"origin": origin}
        for method, rest in (("POST", "/reset"), ("POST", "/interrupt"), ("GET", "/events")):
            refused = await http.request(method, f"/v1/sessions/{key}{rest}", headers=headers)
            assert problem_of(refused).code == "denied"
            assert not [name for name in refused.headers if name.startswith("access-control")]
    own = {"origin": gateway.url}
    assert (await http.get(f"/v1/sessions/{key}", headers=own)).status_code == 200


async def test_a_fault_is_told_as_its_number_in_the_log(
    temporal_address: str, tmp_path: Path
) -> None:
    async with (
        running_stack(tmp_path, temporal_address) as stack,
        running_gateway(stack) as gateway,
        gateway.client() as http,
    ):
        with sqlite3.connect(tmp_path / "perdure.db") as database:
            database.execute("ALTER TABLE sessions RENAME TO secret_table")
        failed = await http.get("/v1/sessions")
        problem = problem_of(failed)
        assert (problem.status, problem.code) == (500, "internal")
        assert "secret_table" not in failed.text
        assert "sessions" not in problem.detail
        incident = problem.detail.partition("incident ")[2].rstrip(").")
        assert f"incident {incident}" in gateway.log
        await eventually(lambda: "no such table" in gateway.log)


def test_every_code_has_a_status() -> None:
    assert set(STATUS) == set(Code)


async def test_openapi_tells_every_answer_and_its_examples_are_true(
    http: httpx2.AsyncClient,
) -> None:
    document = (await http.get("/openapi.json")).json()
    operations = {
        f"{method} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert "post /v1/sessions/{key}/messages" in operations
    for name, operation in operations.items():
        assert operation["summary"], name
        for status, response in operation["responses"].items():
            if int(status) >= 400 and name.split()[1].startswith(SHAPED):
                schema = response["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorBody"}, name
            elif int(status) >= 400:
                content = response["content"]["application/problem+json"]
                assert content["schema"] == {"$ref": "#/components/schemas/Problem"}, name
                assert list(response["content"]) == ["application/problem+json"]
    schemas = document["components"]["schemas"]
    assert "HTTPValidationError" not in schemas
    for example in schemas["NewMessage"]["examples"]:
        NewMessage.model_validate(example)
    assert (
        "text/event-stream"
        in (operations["get /v1/sessions/{key}/events"]["responses"]["200"]["content"])
    )


async def test_agents_are_listed_without_their_instructions(http: httpx2.AsyncClient) -> None:
    listed = await http.get("/v1/agents")
    assert listed.json() == {
        "agents": [
            {
                "name": "main",
                "models": ["rehearsal"],
                "tools": ["files", "sessions", "subagents", "context", "memory"],
                "clearance": "CONFIDENTIAL",
                "default": True,
            }
        ]
    }


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/approvals", "/v1/agents"])
async def test_a_parameter_that_is_not_known_is_refused_and_not_overlooked(
    path: str, http: httpx2.AsyncClient
) -> None:
    refused = await http.get(path, params={"status": "bogus", "limit_": 3})
    told = problem_of(refused)
    assert refused.status_code == 422
    assert {one.field for one in told.errors} == {"query.status", "query.limit_"}
    assert "known: " in told.errors[0].message
