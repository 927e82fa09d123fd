"""The OpenAPI document: complete, and true of a gateway that is asked all kinds of things."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.http.description import SHAPED
from gateway.http.examples import EXAMPLES
from gateway.http.more_examples import EXAMPLES as MORE
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.stack import Stack, running_stack

CONFIG = '[agents.main]\ntools = ["files"]\n[memory]\nembedder = "hashing"\n'
#: What is no matter of the document: what strings mean (a query that asks nothing, a cursor of
#: another list), and who asks, which nobody says to a gateway without keys.
NOT_TOLD = "positive_data_acceptance,ignored_auth"
#: It ends when its reader does.
ENDLESS = "^/v1/sessions/[{]key[}]/events$"


#: `make fuzz` asks much more, for some minutes, and on each engine.
FUZZ = bool(os.environ.get("FUZZ"))


@pytest.fixture(scope="module", params=["sqlite", "postgresql"] if FUZZ else ["sqlite"])
async def gateway(
    request: pytest.FixtureRequest,
    temporal_address: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[GatewayProcess]:
    home = tmp_path_factory.mktemp("openapi")
    environ = {}
    if request.param == "postgresql":
        cluster = request.getfixturevalue("cluster")
        environ["PERDURE_STORE_URL"] = await cluster.fresh(migrated=False)
    async with (
        running_stack(home, temporal_address, config=CONFIG, environ=environ) as stack,
        running_gateway(stack) as gateway,
    ):
        await _lay_ground(stack)
        yield gateway


async def _lay_ground(stack: Stack) -> None:
    """What the examples speak of."""
    await stack.client.ask("default:bob", "/say hello", message_id="order-4711", timeout=60)
    await stack.client.ask("default:alice", "/say hello", timeout=60)


@pytest.fixture(scope="module")
async def document(gateway: GatewayProcess) -> dict[str, Any]:
    async with gateway.client() as http:
        found: dict[str, Any] = (await http.get("/openapi.json")).json()
    return found


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


async def test_every_operation_says_what_it_does_takes_and_answers(
    document: dict[str, Any],
) -> None:
    missing: list[str] = []
    for name, operation in operations(document):
        if not operation.get("description"):
            missing.append(f"{name}: a description")
        parts = {"the request": operation.get("requestBody", {}), **operation["responses"]}
        for part, told in parts.items():
            if part != "the request" and not told.get("description"):
                missing.append(f"{name}: {part}: a description")
            for content in told.get("content", {}).values():
                if "example" not in content and "examples" not in content:
                    missing.append(f"{name}: {part}: an example")
        for parameter in operation.get("parameters", ()):
            if not (parameter.get("description") or _explains_itself(parameter["schema"])):
                missing.append(f"{name}: {parameter['name']}: a description")
    assert missing == []


def _explains_itself(schema: dict[str, Any]) -> bool:
    """Whether a parameter is a number within bounds, or one of a few words."""
    kinds = (schema, *schema.get("anyOf", ()))
    return any("maximum" in one or "enum" in one or "$ref" in one for one in kinds)


async def test_every_act_says_what_its_key_does_and_every_list_can_be_followed(
    document: dict[str, Any],
) -> None:
    for name, operation in operations(document):
        path = name.partition(" ")[2]
        if not path.startswith("/v1/") or path.startswith(SHAPED):
            continue
        sent = {parameter["name"].lower() for parameter in operation.get("parameters", ())}
        answer = operation["responses"].get("200", {})
        if name.startswith("POST"):
            told = "does it again" in operation["description"]
            assert told != ("idempotency-key" in sent), name
        elif name.startswith("GET") and "application/json" in answer.get("content", {}):
            assert "if-none-match" in sent, name
            assert {"ETag", *(["Link"] if "cursor" in sent else [])} <= set(answer["headers"]), name


async def test_refusals_are_problems_everywhere(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        if name.partition(" ")[2].startswith(SHAPED):
            continue
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                (content,) = response["content"].items()
                assert content[0] == "application/problem+json", name
                assert content[1]["schema"] == {"$ref": "#/components/schemas/Problem"}, name
                assert content[1]["example"]["status"] == int(status), name


async def test_no_example_is_left_without_what_it_shows(document: dict[str, Any]) -> None:
    told = str(document["paths"])
    assert [name for name in (*EXAMPLES, *MORE) if f"schemas/{name}'" not in told] == []


async def schemathesis(gateway: GatewayProcess, home: Path, *arguments: str) -> tuple[int, str]:
    """Run it against a gateway; its exit code and what it wrote."""
    process = await asyncio.create_subprocess_exec(
        *(str(Path(sys.executable).with_name("schemathesis")), "run"),
        *(f"{gateway.url}/openapi.json", "--exclude-path-regex", ENDLESS),
        *("--exclude-checks", NOT_TOLD, "--generation-deterministic", "--no-color"),
        *("--request-timeout", "30", "--warnings", "off", *arguments),
        cwd=home,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    told, _ = await process.communicate()
    return process.returncode or 0, told.decode()


async def test_the_gateway_answers_as_it_says_whatever_it_is_asked(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    if FUZZ:
        limits = ("--phases", "examples,coverage,fuzzing", "--max-examples", "40")
    else:
        limits = ("--phases", "examples,fuzzing", "--max-examples", "2", "--no-shrink")
    code, told = await schemathesis(gateway, tmp_path, *limits)
    assert code == 0, told
    assert "Traceback" not in gateway.log
