"""Keys and tenants, crossing every endpoint that the OpenAPI document has, whoever added it.

Nobody reads, changes or finds out anything with a key that is not good for it: not of another
tenant, not above its clearance, not without the scope. What is there and may not be seen is
answered, to the last byte, as what is not.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from gateway.http.openai.sessions import response_id
from gateway.keys import NewApiKey
from perdure.domain.access import Caller, Scope
from perdure.domain.labels import Label
from perdure.domain.memory import NewEntry
from tests.support import delegating
from tests.support.delegating import spawn
from tests.support.gateway import running_gateway
from tests.support.policed import call, pending, rule
from tests.support.stack import Stack, running_stack, until

CONFIG = f"""
[agents.main]
tools = ["files", "subagents", "sessions", "memory"]
clearance = "CONFIDENTIAL"
[memory]
embedder = "hashing"
[gateway]
keys = "required"
{rule("ask", "PRE_TOOL_CALL", "REQUIRE_APPROVAL", ("tool", "equals", "write"))}
"""

#: A word that is in every session, memory and name of the tenant whose secrets these are.
SECRET = "xylophone"
OURS = "acme:xylophone"
HIGH = "acme:xylophone-high"
NOT_THERE = "acme:nobody"


@dataclass
class House:
    """A tenant with something of everything, and the keys that try to get at it."""

    http: httpx2.AsyncClient
    operations: list[tuple[str, str, dict[str, Any]]]
    document: dict[str, Any]
    #: By the name of the path's parameter.
    theirs: dict[str, str]
    keys: dict[str, str]

    async def ask(
        self, key: str | None, method: str, path: str, operation: dict[str, Any], **query: str
    ) -> httpx2.Response:
        headers = {} if key is None else {"Authorization": f"Bearer {self.keys[key]}"}
        body = self._body(operation)
        for one in operation.get("parameters", ()):
            if one["in"] == "query" and one["required"]:
                query.setdefault(one["name"], "x")
        return await self.http.request(method, path, headers=headers, json=body, params=query)

    def _body(self, operation: dict[str, Any]) -> Any:
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        if "example" in content:
            return content["example"]
        name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
        schema = self.document["components"]["schemas"].get(name, content.get("schema", {}))
        return schema.get("examples", [None])[0]


#: Ids that nothing has, in the form of those that something has.
MISSING = {
    "key": NOT_THERE,
    "message_id": "msg_none",
    "run_id": "run_main_00000000000000000000000000",
    "approval_id": "apr_00000000000000000000000000",
    "entry_id": "memory/none",
    "node_id": "sum_none",
    "turn": "1",
    "key_id": "000000000000",
    "name": "nothing",
    "response_id": response_id(NOT_THERE, "msg_none"),
}


def fill(path: str, ids: dict[str, str]) -> str:
    for name, value in ids.items():
        path = path.replace("{" + name + "}", quote(value, safe=""))
    return path.replace("{", "").replace("}", "")


def params_of(path: str) -> list[str]:
    return [part.partition("}")[0] for part in path.split("{")[1:]]


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stack]:
    home = tmp_path_factory.mktemp("crossing")
    async with running_stack(home, temporal_address, config=CONFIG) as stack:
        yield stack


@pytest.fixture(scope="module")
async def house(stack: Stack) -> AsyncIterator[House]:
    keys = {name: made.text for name, made in (await _keys(stack)).items()}
    theirs = await _something_of_everything(stack)
    theirs["key_id"] = keys["ours"].split("_")[1]
    async with running_gateway(stack) as gateway, gateway.client() as http:
        document = (await http.get("/openapi.json")).json()
        operations = [
            (method.upper(), path, operation)
            for path, methods in document["paths"].items()
            for method, operation in methods.items()
        ]
        house = House(http, operations, document, theirs, keys)
        for key in keys:
            answer = await house.ask(key, "GET", "/v1/agents", {})
            assert answer.status_code == (401 if key == "revoked" else 200), (key, answer.text)
        yield house


async def _keys(stack: Stack) -> dict[str, NewApiKey]:
    keys = stack.client.keys

    async def key(name: str, *scopes: Scope, tenant: str = "acme", up_to: Label) -> NewApiKey:
        return await keys.create(name, scopes=scopes, tenant=tenant, clearance=up_to, rate=100_000)

    high = Label.CONFIDENTIAL
    made = {
        "ours": await key(SECRET, Scope.ADMIN, up_to=high),
        "foreign": await key("spy", *Scope, tenant="globex", up_to=high),
        "low": await key("intern", *Scope, up_to=Label.PUBLIC),
        "revoked": await key("gone", *Scope, up_to=high),
    }
    await keys.revoke(made["revoked"].id)
    everything = set(Scope) - {Scope.ADMIN}
    for scope in everything:
        made[f"without {scope}"] = await key("partial", *(everything - {scope}), up_to=high)
    return made


async def _something_of_everything(stack: Stack) -> dict[str, str]:
    boss = Caller(name="boss", tenant="acme", scopes=frozenset(Scope), clearance=Label.CONFIDENTIAL)
    client = stack.client.on_behalf_of(boss)
    await client.ask(OURS, f"/say {SECRET}", message_id=f"{SECRET}-1", timeout=60)
    await delegating.ask(stack, OURS, spawn("/sleep 300", later=True), "/say ok")
    await client.ask(HIGH, f"/say {SECRET}", label=Label.CONFIDENTIAL, timeout=60)
    await client.send("acme:xylophone-asks", call("write", path="x", content=SECRET))
    (waiting,) = await pending(stack, "acme:xylophone-asks")
    stored = await client.memory.store(
        NewEntry(tenant="acme", agent="main", content=f"{SECRET}s are played", key=SECRET)
    )
    await client.memory.close()
    await client.schedules.add(SECRET, OURS, f"/say {SECRET}", cron="0 0 1 1 *")
    (run,) = (await client.runs.list(OURS)).runs
    return {
        "key": OURS,
        "message_id": f"{SECRET}-1",
        "run_id": run.run_id,
        "approval_id": waiting.id,
        "entry_id": stored.id,
        "node_id": f"{SECRET}-1",
        "turn": "1",
        "name": SECRET,
        "response_id": response_id(OURS, f"{SECRET}-1"),
    }


def without(text: str, ids: dict[str, str]) -> str:
    """An answer without the names that the request brought itself."""
    for name, value in ids.items():
        if name != "turn":
            text = text.replace(json.dumps(value)[1:-1], "<id>")
    return text


async def test_without_a_good_key_nothing_is_answered(house: House) -> None:
    closed = [one for one in house.operations if "security" in one[2]]
    assert len(closed) > 30
    for method, path, operation in closed:
        refused = await house.ask(None, method, fill(path, house.theirs), operation)
        assert refused.status_code == 401, (method, path, refused.text)
        assert refused.headers["www-authenticate"] == "Bearer"
        # After a while nothing more is heard of an address that tries one bad key after the other.
        revoked = await house.ask("revoked", method, fill(path, house.theirs), operation)
        assert revoked.status_code in (401, 429), (method, path, revoked.text)
        assert SECRET not in refused.text + revoked.text
    for method, path, operation in house.operations:
        if "security" not in operation and not params_of(path):
            assert (await house.ask(None, method, path, operation)).status_code != 401, path


async def test_without_the_scope_nothing_is_answered(house: House) -> None:
    for method, path, operation in house.operations:
        asked = operation.get("x-scopes", [])
        lacking = [
            key
            for key, scopes in (
                (f"without {scope}", set(Scope) - {scope, Scope.ADMIN})
                for scope in set(Scope) - {Scope.ADMIN}
            )
            if not scopes & set(asked)
        ]
        for key in lacking if len(asked) == 1 else []:
            refused = await house.ask(key, method, fill(path, house.theirs), operation)
            assert refused.status_code == 403, (method, path, key, refused.text)
            assert asked[0] in refused.text
            assert SECRET not in refused.text


async def test_what_is_another_tenants_is_not_there(house: House) -> None:
    crossed = 0
    for method, path, operation in house.operations:
        if "security" not in operation:
            continue
        named = params_of(path)
        if not named:
            answer = await house.ask("foreign", method, path, operation)
            assert SECRET not in answer.text, (method, path)
            continue
        theirs = await house.ask("foreign", method, fill(path, house.theirs), operation)
        missing = await house.ask("foreign", method, fill(path, MISSING), operation)
        known = {*named} <= {*MISSING}
        assert theirs.status_code in ((403, 404) if known else (400, 403, 404)), theirs.text
        assert theirs.status_code == missing.status_code, (method, path)
        assert without(theirs.text, house.theirs) == without(missing.text, MISSING), (method, path)
        assert set(theirs.headers) == set(missing.headers)
        crossed += 1
    assert crossed > 20


async def test_lists_of_another_tenants_session_are_those_of_none(house: House) -> None:
    for method, path, operation in house.operations:
        names = {one["name"] for one in operation.get("parameters", ())}
        if "session_key" not in names or params_of(path):
            continue
        theirs = await house.ask("foreign", method, path, operation, session_key=OURS)
        missing = await house.ask("foreign", method, path, operation, session_key=NOT_THERE)
        assert theirs.status_code == missing.status_code, (method, path)
        assert without(theirs.text, {"key": OURS}) == without(missing.text, {"key": NOT_THERE})


async def test_what_is_above_the_clearance_is_not_there(house: House) -> None:
    high = {**house.theirs, "key": HIGH}
    missing = {**house.theirs, "key": NOT_THERE}
    for method, path, operation in house.operations:
        if "key" not in params_of(path) or "security" not in operation:
            continue
        there = await house.ask("low", method, fill(path, high), operation)
        assert there.status_code == 404, (method, path, there.text)
        if (method, path) == ("POST", "/v1/sessions/{key}/messages"):
            continue  # to one that is not there, it would begin it
        not_there = await house.ask("low", method, fill(path, missing), operation)
        assert not_there.status_code == there.status_code, (method, path)
        assert without(there.text, high) == without(not_there.text, missing), (method, path)


async def test_whose_it_is_finds_all_of_it_untouched(stack: Stack, house: House) -> None:
    read = [
        (method, path, operation)
        for method, path, operation in house.operations
        if method == "GET"
        and params_of(path)
        and {*params_of(path)} <= {*MISSING}
        and not path.endswith(("/events", "/{node_id}"))
    ]
    for method, path, operation in read:
        found = await house.ask("ours", method, fill(path, house.theirs), operation)
        assert found.status_code in (200, 202, 404, 504), (method, path, found.text)
        if "result" not in path:
            assert found.status_code == 200, (method, path, found.text)
    status = await stack.client.status(OURS)
    assert (status.state, status.children, status.pending) == ("idle", 1, 0)
    assert (await stack.client.history(OURS)).total == 6


async def test_who_was_refused_is_in_the_audit_trail_without_the_key(
    stack: Stack, house: House
) -> None:
    kept = await _trail(stack)
    assert any("another tenant's" in entry.reason and OURS in entry.session_key for entry in kept)
    assert any("CONFIDENTIAL" in entry.reason and HIGH in entry.session_key for entry in kept)
    assert any("revoked" in entry.reason for entry in kept)
    told = "".join(f"{entry.reason}{entry.arguments}" for entry in kept)
    assert not any(text.split("_", 2)[2] in told for text in house.keys.values())
    # Every operation was refused many times over.
    assert len(kept) < 60


async def _trail(stack: Stack) -> list[Any]:
    from sqlalchemy import select

    from perdure.store.tables import audit

    def query(connection: Any) -> list[Any]:
        return list(connection.execute(select(audit).where(audit.c.hook == "ACCESS")))

    async def settled() -> bool:
        return any("revoked" in row.reason for row in await stack.client.store.database.read(query))

    await until(settled)
    return await stack.client.store.database.read(query)
