"""A gateway that others than this machine could reach: TLS, names, web pages, keys, and no secret
in a URL or a log."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from perdure.domain.access import Scope
from perdure.domain.errors import InvalidArgument
from perdure.store.keys import ApiKey
from tests.support.gateway import GatewayProcess, running_gateway
from tests.support.stack import Stack, running_stack

PAGE = "https://chat.example.org"


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("reachable")
    await _certificate(home)
    config = f"""
    [gateway]
    hosts = ["perdure.example.org"]
    origins = ["{PAGE}"]
    tls_certificate = "{home}/gateway.crt"
    tls_key = "{home}/gateway.key"
    """
    async with running_stack(home, temporal_address, config=config) as stack:
        yield stack


async def _certificate(home: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
        *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
        *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        *("-keyout", f"{home}/gateway.key", "-out", f"{home}/gateway.crt"),
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == 0


@pytest.fixture(scope="module")
async def key(stack: Stack) -> str:
    made = await stack.client.keys.create("bot", scopes=[Scope.READ], tenant="acme", rate=20)
    return made.text


@pytest.fixture(scope="module")
async def gateway(stack: Stack, key: str) -> AsyncIterator[GatewayProcess]:
    async with running_gateway(stack) as gateway:
        yield gateway


@pytest.fixture
async def http(stack: Stack, gateway: GatewayProcess) -> AsyncIterator[httpx2.AsyncClient]:
    trust = ssl.create_default_context(cafile=str(stack.home / "gateway.crt"))
    async with gateway.client(verify=trust) as http:
        yield http


async def test_it_speaks_tls_and_asks_for_a_key_in_either_header(
    http: httpx2.AsyncClient, key: str
) -> None:
    assert str(http.base_url).startswith("https://")
    assert (await http.get("/v1/sessions")).status_code == 401
    for headers in ({"Authorization": f"Bearer {key}"}, {"X-API-Key": key}):
        assert (await http.get("/v1/sessions", headers=headers)).status_code == 200
    assert (await http.get("/healthz")).status_code == 200


async def test_a_key_in_a_url_is_refused_and_written_nowhere(
    http: httpx2.AsyncClient, gateway: GatewayProcess, stack: Stack, key: str
) -> None:
    for url in (f"/v1/sessions?api_key={key}", f"/v1/sessions/{key}", f"/{key[:3]}%5F{key[4:]}"):
        refused = await http.get(url)
        assert refused.status_code == 400
        assert "stands in the URL" in refused.json()["detail"]
        assert key not in refused.text
    secret = key.split("_", 2)[2]
    assert secret not in gateway.log
    assert secret not in (stack.home / "worker.log").read_text()


async def test_it_answers_to_its_names_alone(http: httpx2.AsyncClient, key: str) -> None:
    mine = {"Authorization": f"Bearer {key}"}
    named = await http.get("/v1/sessions", headers={"Host": "perdure.example.org", **mine})
    assert named.status_code == 200
    strange = await http.get("/v1/sessions", headers={"Host": "evil.example.org", **mine})
    assert strange.status_code == 403


async def test_web_pages_that_are_named_may_call_it_and_no_others(
    http: httpx2.AsyncClient, key: str
) -> None:
    asked = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "x-api-key"}
    allowed = await http.options("/v1/sessions", headers={"Origin": PAGE, **asked})
    assert allowed.headers["access-control-allow-origin"] == PAGE
    assert "access-control-allow-credentials" not in allowed.headers
    answer = await http.get("/v1/sessions", headers={"Origin": PAGE, "X-API-Key": key})
    assert answer.headers["access-control-allow-origin"] == PAGE
    refused = await http.get("/v1/sessions", headers={"Origin": PAGE})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, PAGE)
    other = {"Origin": "https://evil.example.org", "X-API-Key": key}
    stranger = await http.get("/v1/sessions", headers=other)
    assert stranger.status_code == 403
    assert "access-control-allow-origin" not in stranger.headers


async def test_a_tenant_that_was_left_empty_is_not_every_tenant(stack: Stack) -> None:
    with pytest.raises(InvalidArgument, match="'' is no tenant"):
        await stack.client.keys.create("slip", scopes=[Scope.CHAT], tenant="")


async def test_keys_are_made_listed_and_revoked_by_admins(
    stack: Stack, http: httpx2.AsyncClient
) -> None:
    admin = await stack.client.keys.create("boss", scopes=[Scope.ADMIN], tenant="acme")
    mine = {"Authorization": f"Bearer {admin.text}"}
    body = {"name": "ci", "scopes": ["chat"], "rate": 5}
    made = await http.post("/v1/keys", json=body, headers={"Idempotency-Key": "once", **mine})
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    text = made.json()["text"]
    again = await http.post("/v1/keys", json=body, headers={"Idempotency-Key": "once", **mine})
    assert again.status_code == 409
    his = {"Authorization": f"Bearer {text}"}
    assert (await http.get("/v1/agents", headers=his)).status_code == 200
    listed = await http.get("/v1/keys", headers=mine, params={"limit": 1})
    assert [one["name"] for one in listed.json()["keys"]] == ["ci"]
    older = await http.get(listed.links["next"]["url"], headers=mine)
    assert [one["name"] for one in older.json()["keys"]] == ["boss"]
    assert text.split("_", 2)[2] not in listed.text
    revoked = await http.delete(made.headers["location"], headers=mine)
    assert ApiKey.model_validate(revoked.json()).revoked_at is not None
    assert (await http.get("/v1/agents", headers=his)).status_code == 401


async def test_what_a_key_has_open_ends_when_it_is_revoked(
    stack: Stack, http: httpx2.AsyncClient
) -> None:
    made = await stack.client.keys.create("ear", scopes=[Scope.CHAT], tenant="acme")
    mine = {"Authorization": f"Bearer {made.text}"}
    path = "/v1/sessions/acme:open"
    sent = await http.post(f"{path}/messages", json={"text": "/sleep 60"}, headers=mine)
    turn = f"{path}/turns/{sent.json()['message_id']}?timeout=600"
    waiting = asyncio.create_task(http.get(turn, headers=mine))
    async with asyncio.timeout(30), http.stream("GET", f"{path}/events", headers=mine) as heard:
        assert heard.status_code == 200
        await stack.client.keys.revoke(made.id)
        with pytest.raises(httpx2.RemoteProtocolError):
            async for _ in heard.aiter_text():
                pass
        assert (await waiting).status_code == 401


async def test_a_key_asks_no_more_than_it_may(http: httpx2.AsyncClient, key: str) -> None:
    mine = {"X-API-Key": key}
    answers = [await http.get("/v1/agents", headers=mine) for _ in range(25)]
    refused = next(one for one in answers if one.status_code == 429)
    assert 0 < int(refused.headers["retry-after"]) <= 3
    assert refused.headers["content-type"] == "application/problem+json"
    shaped = await http.get("/v1/models", headers=mine)
    if shaped.status_code == 429:
        assert "error" in shaped.json()


async def test_who_says_where_they_come_from_is_not_believed(
    http: httpx2.AsyncClient, key: str
) -> None:
    for number in range(25):
        headers = {"X-Forwarded-For": f"198.51.100.{number}", "X-API-Key": "pdr_no_key"}
        refused = await http.get("/v1/sessions", headers=headers)
    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= 6
    assert refused.json()["code"] == "rate_limited"
