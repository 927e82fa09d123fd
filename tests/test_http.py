"""The HTTP gateway: sessions as JSON, called by a real client over TCP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from tests.support.gateway import running_gateway
from tests.support.stack import Stack, fresh_key, running_stack


@pytest.fixture(scope="module")
async def http(stack: Stack) -> AsyncIterator[httpx2.AsyncClient]:
    async with running_gateway(stack) as gateway, gateway.client() as client:
        yield client


def path(key: str, rest: str = "") -> str:
    return f"/v1/sessions/{quote(key, safe='')}{rest}"


async def send(http: httpx2.AsyncClient, key: str, text: str, **body: Any) -> httpx2.Response:
    headers = {"Idempotency-Key": body.pop("id")} if "id" in body else {}
    return await http.post(path(key, "/messages"), json={"text": text, **body}, headers=headers)


async def ask(http: httpx2.AsyncClient, key: str, text: str, **body: Any) -> dict[str, Any]:
    response = await send(http, key, text, wait=True, **body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


# Messages ------------------------------------------------------------------------------------


async def test_who_waits_gets_the_result_of_the_turn(http: httpx2.AsyncClient) -> None:
    key = fresh_key("wait")
    answer = await ask(http, key, "/say hello")
    assert answer["text"] == "hello"
    assert answer["state"] == "completed"
    assert answer["session_key"] == key
    assert answer["turn"] == answer["steps"] == 1
    assert set(answer["usage"]) == {"input_tokens", "output_tokens", "cost"}


async def test_who_does_not_wait_finds_the_answer_at_the_location(
    http: httpx2.AsyncClient,
) -> None:
    key = fresh_key("location") + "~thread~a/b"
    response = await send(http, key, "/say later", id="odd/id?#%2F;~")
    assert response.status_code == 202
    assert response.json() == {
        "message_id": "odd/id?#%2F;~",
        "session_key": key,
        "position": 0,
        "duplicate": False,
        "status": "admitted",
    }
    answer = await http.get(response.headers["location"], params={"timeout": 60})
    assert answer.status_code == 200
    assert (answer.json()["text"], answer.json()["message_id"]) == ("later", "odd/id?#%2F;~")


async def test_the_same_idempotency_key_is_the_same_message(http: httpx2.AsyncClient) -> None:
    key = fresh_key("idempotent")
    first = await ask(http, key, "/say once", id="order-1")
    assert await ask(http, key, "/say once", id="order-1") == first
    again = await send(http, key, "/say once", id="order-1")
    assert (again.status_code, again.json()["duplicate"]) == (202, True)
    other = await send(http, key, "/say twice", id="order-1")
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    history = (await http.get(path(key, "/messages"))).json()
    assert [message["text"] for message in history["messages"]] == ["/say once", "once"]


async def test_a_wait_that_ends_early_is_no_error_and_the_answer_comes(
    http: httpx2.AsyncClient,
) -> None:
    key = fresh_key("early")
    response = await send(http, key, "/sleep 2\n---\n/say slow", wait=True, timeout=0.1, id="s")
    assert (response.status_code, response.json()["status"]) == (202, "delivered_no_reply")
    waiting = await send(http, key, "/say next", id="n")
    assert waiting.status_code == 202
    found = await http.get(path(key, "/turns/n"))
    assert (found.status_code, found.json()["status"]) == (202, "delivered_no_reply")
    assert (await http.get(path(key, "/turns/s?timeout=60"))).json()["text"] == "slow"
    assert (await http.get(path(key, "/turns/n?timeout=60"))).json()["text"] == "next"


async def test_a_failed_turn_is_a_result(http: httpx2.AsyncClient) -> None:
    answer = await ask(http, fresh_key("failed"), "/fail auth 1")
    assert answer["state"] == "failed"
    assert answer["error"]["message"]


async def test_a_message_that_a_reset_discarded_is_not_found(http: httpx2.AsyncClient) -> None:
    key = fresh_key("discarded")
    running = await send(http, key, "/sleep 60", id="running")
    assert running.status_code == 202
    await send(http, key, "/say never", id="waiting")
    reset = await http.post(path(key, "/reset"))
    assert (reset.status_code, reset.json()) == (200, {"dropped": 1})
    for question in ("", "?timeout=60"):
        found = await http.get(path(key, f"/turns/waiting{question}"))
        assert (found.status_code, found.json()["code"]) == (404, "not_found")
    ended = await http.get(path(key, "/turns/running?timeout=60"))
    assert ended.json()["state"] == "interrupted"


async def test_an_interrupt_stops_the_turn_and_not_the_session(http: httpx2.AsyncClient) -> None:
    key = fresh_key("interrupt")
    await ask(http, key, "/say one")
    await send(http, key, "/sleep 60", id="long")
    stopped = await http.post(path(key, "/interrupt"))
    assert (stopped.status_code, stopped.json()) == (200, {"turn": 2})
    assert (await http.get(path(key, "/turns/long?timeout=60"))).json()["state"] == "interrupted"
    assert (await http.post(path(key, "/interrupt"))).json() == {"turn": None}
    assert (await ask(http, key, "/say two"))["text"] == "two"


async def test_history_comes_newest_page_first_each_in_order(http: httpx2.AsyncClient) -> None:
    key = fresh_key("history")
    for number in range(3):
        await ask(http, key, f"/say {number}")
    page = (await http.get(path(key, "/messages"), params={"limit": 2})).json()
    assert [message["text"] for message in page["messages"]] == ["/say 2", "2"]
    assert (page["total"], page["has_more"]) == (6, True)
    last = (await http.get(path(key, "/messages"), params={"limit": 2, "offset": 4})).json()
    assert [message["text"] for message in last["messages"]] == ["/say 0", "0"]
    assert not last["has_more"]


# Sessions ------------------------------------------------------------------------------------


async def test_sessions_are_listed_last_active_first(http: httpx2.AsyncClient) -> None:
    old, new = fresh_key("old"), fresh_key("new") + "~guild~g"
    await ask(http, old, "/say x")
    await ask(http, new, "/say x")
    both = (await http.get("/v1/sessions", params={"limit": 2})).json()
    assert [session["session_key"] for session in both["sessions"]] == [new, old]
    groups = (await http.get("/v1/sessions", params={"kind": "group", "since_minutes": 5})).json()
    assert groups["sessions"][0]["session_key"] == new
    assert {session["kind"] for session in groups["sessions"]} == {"group"}
    second = (await http.get("/v1/sessions", params={"limit": 1, "offset": 1})).json()
    assert second["sessions"][0]["session_key"] == old
    assert second["total"] >= 2


async def test_a_closed_session_opens_again_with_its_history(http: httpx2.AsyncClient) -> None:
    key = fresh_key("close")
    await ask(http, key, "/say before")
    assert (await http.get(path(key))).json()["state"] == "idle"
    closed = await http.delete(path(key))
    assert (closed.status_code, closed.content) == (204, b"")
    assert (await http.get(path(key))).json()["state"] == "closed"
    assert (await http.delete(path(key))).status_code == 204
    assert (await ask(http, key, "/say after"))["turn"] == 2
    status = (await http.get(path(key))).json()
    assert (status["state"], status["turns"], status["pending"]) == ("idle", 2, 0)


@pytest.mark.parametrize("rest", ["~thread~a/b//c", "~peer~x@20y", "+=,!.-_", "~channel~@C3@BC"])
async def test_every_session_key_can_be_spelt_in_a_path(
    http: httpx2.AsyncClient, rest: str
) -> None:
    key = fresh_key("key") + rest
    await ask(http, key, "/say here")
    encoded = (await http.get(f"/v1/sessions/{quote(key, safe='')}")).json()
    assert encoded["session_key"] == key
    plain = (await http.get(f"/v1/sessions/{key.replace('/', '%2F')}/messages")).json()
    assert (plain["session_key"], plain["total"]) == (key, 2)
    every = "".join(f"%{byte:02x}" for byte in key.encode())
    assert (await http.get(f"/v1/sessions/{every}")).json() == encoded


async def test_a_slash_left_bare_in_a_key_is_told_how_to_be_written(
    http: httpx2.AsyncClient,
) -> None:
    response = await http.get("/v1/sessions/default:bob~thread~a/b")
    assert response.status_code == 404
    assert "%2F" in response.json()["hint"]


# Limits --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def narrow(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[httpx2.AsyncClient]:
    config = "[limits]\nmessage_bytes = 1000\ninbox = 2\n"
    home = tmp_path_factory.mktemp("narrow")
    async with (
        running_stack(home, temporal_address, config=config) as stack,
        running_gateway(stack) as gateway,
        gateway.client() as client,
    ):
        yield client


async def test_a_message_may_be_as_large_as_the_limit_however_it_is_escaped(
    narrow: httpx2.AsyncClient,
) -> None:
    key = fresh_key("fits")
    body = b'{"text":"' + b"\\u00e9" * 500 + b'","wait":true}'
    headers = {"content-type": "application/json"}
    fits = await narrow.post(path(key, "/messages"), content=body, headers=headers)
    assert fits.status_code == 200
    larger = await send(narrow, key, "é" * 500 + "x")
    assert (larger.status_code, larger.json()["code"]) == (413, "limit_exceeded")
    assert "1001 bytes; limits.message_bytes is 1000" in larger.json()["detail"]


async def test_a_full_inbox_is_worth_another_try(narrow: httpx2.AsyncClient) -> None:
    key = fresh_key("full")
    for number in range(3):
        assert (await send(narrow, key, "/sleep 60", id=f"{number}")).status_code == 202
    full = await send(narrow, key, "one too many", id="3")
    assert (full.status_code, full.json()["code"]) == (429, "limit_exceeded")
    assert full.headers["retry-after"] == "1"
    assert (await narrow.get(path(key, "/turns/3"))).status_code == 404
    assert (await narrow.post(path(key, "/reset"))).json() == {"dropped": 2}


@pytest.mark.parametrize("declared", [True, False])
async def test_ten_megabytes_are_refused_with_the_limit_named(
    http: httpx2.AsyncClient, declared: bool
) -> None:
    key = fresh_key("huge")

    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"text":"'
        for _ in range(10):
            yield b"x" * 1_000_000
        yield b'"}'

    content = b"".join([chunk async for chunk in chunks()]) if declared else chunks()
    headers = {"content-type": "application/json"}
    refused = await http.post(path(key, "/messages"), content=content, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (413, "limit_exceeded")
    # It is the body that was refused, before any of it was looked at.
    assert "The body has more than 3065536 bytes" in refused.json()["detail"]
    assert "limits.message_bytes is 1000000" in refused.json()["detail"]
    assert (await http.get(path(key))).status_code == 404
