"""Inbound webhooks: verified, understood, once; and their answers back by a channel, once."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import select

from activities import replying
from activities.replying import Replying
from gateway.hooks.formats import Arrived, Ignored, understood
from gateway.hooks.reception import message_id, session_key
from gateway.hooks.signatures import signed, verify
from perdure.channels.courier import Courier
from perdure.config import load_settings
from perdure.config.webhooks import HookKind, WebhookSettings, key_of
from perdure.domain.errors import InvalidArgument, NotFound, Unauthenticated
from perdure.domain.states import DeliveryState
from perdure.guard import Guard
from perdure.store.tables import audit
from tests.support.channels import SECRET as CHANNEL_SECRET
from tests.support.gateway import running_gateway
from tests.support.outside import HOST, Receiver, http_receiver, mail_server
from tests.support.stack import Stack, running_stack, until
from tests.support.watching import transcript

SECRET = "whsec_" + base64.b64encode(b"a key of twenty-four byt").decode()
PLAIN = "a-secret-of-words-0123456789"


def hook(kind: str, secret: str = PLAIN, **more: Any) -> WebhookSettings:
    return WebhookSettings.model_validate({"kind": kind, "secret": secret, **more})


def standard(body: bytes, delivery_id: str = "msg_1", at: float | None = None) -> dict[str, str]:
    timestamp = int(time.time() if at is None else at)
    key = key_of(hook("generic", SECRET).secret)
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1a,x {signed(key, delivery_id, timestamp, body)}",
    }


def slack(body: bytes, at: float | None = None) -> dict[str, str]:
    timestamp = int(time.time() if at is None else at)
    digest = hmac.new(PLAIN.encode(), f"v0:{timestamp}:".encode() + body, hashlib.sha256)
    return {
        "x-slack-request-timestamp": str(timestamp),
        "x-slack-signature": f"v0={digest.hexdigest()}",
    }


# Signatures ----------------------------------------------------------------------------------


def test_the_scheme_is_that_of_standard_webhooks() -> None:
    # The example of https://www.standardwebhooks.com, as its reference libraries test it.
    body = b'{"test": 2432232314}'
    key = key_of(hook("generic", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").secret)
    expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert signed(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body) == expected


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": "other"},
        {"webhook-timestamp": "1"},
        {"webhook-timestamp": "soon"},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,AAAA"},
        {"webhook-signature": "ü"},
    ],
)
def test_what_is_changed_or_old_is_refused(change: dict[str, str]) -> None:
    settings, body = hook("generic", SECRET), b"{}"
    verify(settings, standard(body), body)
    with pytest.raises(Unauthenticated):
        verify(settings, standard(body) | change, body)
    with pytest.raises(Unauthenticated):
        verify(settings, standard(body), b"{ }")
    with pytest.raises(Unauthenticated):
        verify(settings, standard(body, at=time.time() - 301), body)
    with pytest.raises(Unauthenticated):
        verify(settings, {}, body)


def test_slack_and_telegram_prove_themselves_in_their_own_ways() -> None:
    body = b"{}"
    verify(hook("slack"), slack(body), body)
    for headers in ({}, slack(b"x"), slack(body, at=0)):
        with pytest.raises(Unauthenticated):
            verify(hook("slack"), headers, body)
    token = "x-telegram-bot-api-secret-token"
    verify(hook("telegram"), {token: PLAIN}, body)
    for headers in ({}, {token: ""}, {token: PLAIN[:-1]}):
        with pytest.raises(Unauthenticated):
            verify(hook("telegram"), headers, body)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ('secret = "hunter2"', "16 characters"),
        ('secret = "whsec_???hunter2???"', "base64"),
        (f'secret = "{PLAIN}"\nkind = "discord"', "generic, slack, telegram"),
        (f'secret = "{PLAIN}"\ntolerance = 0.0', "tolerance"),
        (f'secret = "{PLAIN}"\nchannel = "nowhere"', "'nowhere'"),
        (f'secret = "{PLAIN}"\nagent = "nobody"', "'nobody'"),
    ],
)
def test_settings_say_what_is_wrong_and_not_the_secret(
    tmp_path: Path, wrong: str, told: str
) -> None:
    (tmp_path / "perdure.toml").write_text(f"[webhooks.ci]\n{wrong}\n")
    with pytest.raises(InvalidArgument, match=re.escape(told)) as refused:
        load_settings(tmp_path, {})
    assert not any(secret in str(refused.value) for secret in ("hunter2", PLAIN))


def test_a_secret_comes_from_the_environment_too(tmp_path: Path) -> None:
    (tmp_path / "perdure.toml").write_text('[webhooks.ci]\nkind = "generic"\n')
    settings = load_settings(tmp_path, {"PERDURE_WEBHOOKS_CI_SECRET": SECRET})
    assert settings.webhooks["ci"].secret.get_secret_value() == SECRET


# Formats -------------------------------------------------------------------------------------


def _slack_message(**event: Any) -> bytes:
    whole = {
        "type": "event_callback",
        "team_id": "T1",
        "event_id": f"Ev{time.time_ns()}",
        "event": {
            "type": "message",
            "text": "hello",
            "user": "U1",
            "channel": "C1",
            "channel_type": "channel",
            "ts": "1700000000.000100",
            **event,
        },
    }
    return json.dumps(whole).encode()


def test_a_slack_message_belongs_to_its_channel_and_thread() -> None:
    told = understood(HookKind.SLACK, {}, _slack_message(thread_ts="1699.1"))
    assert told == Arrived(
        delivery_id="T1/C1/1700000000.000100",
        text="hello",
        user="U1",
        peer="C1",
        guild="T1",
        thread="1699.1",
    )
    key = str(session_key("team", hook("slack", channel="out"), told))
    assert key == "default:team/C1~channel~out~guild~T1~peer~C1~thread~1699.1"
    # A mention is told as another event, and is the same message.
    mention = understood(HookKind.SLACK, {}, _slack_message(type="app_mention"))
    assert isinstance(mention, Arrived)
    assert mention.delivery_id == told.delivery_id
    direct = understood(HookKind.SLACK, {}, _slack_message(channel="D1", channel_type="im"))
    assert isinstance(direct, Arrived)
    assert str(session_key("team", hook("slack"), direct)) == "default:team/U1~peer~D1"


@pytest.mark.parametrize(
    "event",
    [
        {"bot_id": "B1"},
        {"subtype": "message_changed"},
        {"subtype": "bot_message", "user": None},
        {"type": "reaction_added"},
        {"text": " "},
    ],
)
def test_what_no_person_writes_in_slack_is_ignored(event: dict[str, Any]) -> None:
    assert isinstance(understood(HookKind.SLACK, {}, _slack_message(**event)), Ignored)


def test_a_telegram_message_belongs_to_its_chat_and_topic() -> None:
    update = {
        "update_id": 7,
        "message": {
            "message_id": 1,
            "from": {"id": 42, "is_bot": False, "first_name": "Bob"},
            "chat": {"id": -100, "type": "supergroup"},
            "text": "hello",
            "message_thread_id": 9,
            "is_topic_message": True,
        },
    }
    told = understood(HookKind.TELEGRAM, {}, json.dumps(update).encode())
    assert told == Arrived(
        delivery_id="7", text="hello", user="42", peer="-100", guild="-100", thread="9"
    )
    update["message"] = {**update["message"], "from": {"id": 1, "is_bot": True}}  # type: ignore[dict-item]
    assert isinstance(understood(HookKind.TELEGRAM, {}, json.dumps(update).encode()), Ignored)
    edited = json.dumps({"update_id": 8, "edited_message": update["message"]}).encode()
    assert isinstance(understood(HookKind.TELEGRAM, {}, edited), Ignored)


def test_any_json_is_a_generic_message() -> None:
    headers = {"webhook-id": "d1"}
    said = {"text": "hello", "user": "b~o b", "thread": "42", "other": 1}
    told = understood(HookKind.GENERIC, headers, json.dumps(said).encode())
    assert isinstance(told, Arrived)
    key = session_key("ci", hook("generic"), told)
    assert str(key) == "default:ci/b@7Eo@20b~peer~b@7Eo@20b~thread~42"
    event = understood(HookKind.GENERIC, headers, b'{"type": "build.failed"}')
    assert isinstance(event, Arrived)
    assert "build.failed" in event.text
    for body in (b"{", b"[" * 100_000, b'{"text": ""}', b'{"text": "x", "user": 3}'):
        with pytest.raises(InvalidArgument):
            understood(HookKind.GENERIC, headers, body)


# A running stack -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def receiver() -> AsyncIterator[Receiver]:
    async with http_receiver() as receiver:
        yield receiver


@pytest.fixture(scope="module")
async def stack(
    temporal_address: str, tmp_path_factory: pytest.TempPathFactory, receiver: Receiver
) -> AsyncIterator[Stack]:
    async with mail_server() as mailbox:
        config = f"""
[channels.out]
url = "webhook+http://{HOST}:{receiver.port}/replies"
secret = "{CHANNEL_SECRET}"
level = "INTERNAL"
delivery = "at-least-once"
[channels.out.recipients.bob]
level = "INTERNAL"
[channels.mail]
url = "smtp://{HOST}:{mailbox.port}?from=bot@example.org&starttls=never"
[webhooks.ci]
secret = "{SECRET}"
channel = "out"
label = "INTERNAL"
[webhooks.team]
kind = "slack"
secret = "{PLAIN}"
[webhooks.bot]
kind = "telegram"
secret = "{PLAIN}"
channel = "out"
[webhooks.letters]
secret = "{SECRET}"
channel = "mail"
"""
        home = tmp_path_factory.mktemp("hooks")
        async with running_stack(home, temporal_address, config=config) as running:
            running.mailbox = mailbox  # type: ignore[attr-defined]
            yield running


@pytest.fixture(scope="module")
async def http(stack: Stack) -> AsyncIterator[httpx2.AsyncClient]:
    async with running_gateway(stack) as gateway, gateway.client() as client:
        yield client


async def post(
    http: httpx2.AsyncClient, name: str, said: dict[str, Any], delivery_id: str
) -> httpx2.Response:
    body = json.dumps(said).encode()
    return await http.post(f"/hooks/{name}", content=body, headers=standard(body, delivery_id))


def replies(receiver: Receiver, recipient: str) -> list[dict[str, Any]]:
    told = [json.loads(request.body) for request in receiver.requests]
    return [one for one in told if one["recipient"] == recipient]


async def answered(stack: Stack, key: str, text: str) -> None:
    async def there() -> bool:
        try:
            return any(one.text == text for one in await transcript(stack, key))
        except NotFound:
            return False

    await until(there)


async def test_an_answer_goes_back_by_the_channel_once_whoever_sends_again(
    http: httpx2.AsyncClient, stack: Stack, receiver: Receiver
) -> None:
    said = {"text": "/say built", "user": "bob"}
    for status in ("accepted", "duplicate"):
        response = await post(http, "ci", said, "d-1")
        assert (response.status_code, response.json()["status"]) == (200, status)
    key = "default:ci/bob~channel~out~peer~bob"
    await answered(stack, key, "built")

    async def replied() -> bool:
        return bool(replies(receiver, "bob"))

    await until(replied)
    assert (await post(http, "ci", said, "d-1")).json()["status"] == "duplicate"
    other = await post(http, "ci", {**said, "text": "/say other"}, "d-1")
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    assert (await post(http, "ci", {**said, "text": "/say next"}, "d-2")).status_code == 200

    async def both() -> bool:
        return len(replies(receiver, "bob")) == 2

    await until(both)
    assert [one["text"] for one in replies(receiver, "bob")] == ["built", "next"]
    first = message_id("ci", "d-1")
    entry = await stack.client.store.deliveries.of(key, f"reply/{first}")
    assert entry is not None
    assert entry.state is DeliveryState.CONFIRMED
    assert await stack.client.store.replies.owed(key, first) is None


async def test_an_answer_above_its_recipient_does_not_leave(
    http: httpx2.AsyncClient, stack: Stack, receiver: Receiver
) -> None:
    # Everybody but bob may read what is PUBLIC; what this webhook says is INTERNAL.
    await post(http, "ci", {"text": "/say for inside", "user": "eve"}, "d-3")
    key = "default:ci/eve~channel~out~peer~eve"

    async def settled() -> bool:
        owed = await stack.client.store.replies.owed(key, message_id("ci", "d-3"))
        return owed is None and bool(await stack.client.store.sessions.get(key))

    await until(settled)
    assert replies(receiver, "eve") == []
    page = await transcript(stack, key)
    assert "for inside" not in page[-1].text


async def test_an_answer_goes_by_mail(http: httpx2.AsyncClient, stack: Stack) -> None:
    said = {"text": "/say by mail", "user": "bob", "peer": "bob@example.org"}
    assert (await post(http, "letters", said, "m-1")).status_code == 200
    mailbox = stack.mailbox  # type: ignore[attr-defined]

    async def delivered() -> bool:
        return bool(mailbox.envelopes)

    await until(delivered)
    assert mailbox.envelopes[0].rcpt_tos == ["bob@example.org"]
    assert b"by mail" in mailbox.envelopes[0].content


async def test_slack_and_telegram_are_answered_as_they_expect(
    http: httpx2.AsyncClient, stack: Stack, receiver: Receiver
) -> None:
    body = json.dumps({"type": "url_verification", "challenge": "c0ffee"}).encode()
    challenged = await http.post("/hooks/team", content=body, headers=slack(body))
    assert (challenged.status_code, challenged.text) == (200, "c0ffee")
    body = _slack_message(text="/say in slack", channel="C9")
    for _ in range(2):
        taken = await http.post("/hooks/team", content=body, headers=slack(body))
        assert taken.status_code == 200
    key = "default:team/C9~guild~T1~peer~C9"
    await answered(stack, key, "in slack")
    texts = [one.text for one in await transcript(stack, key)]
    assert texts == ["[U1 writes]\n/say in slack", "in slack"]
    update = {
        "update_id": time.time_ns(),
        "message": {
            "from": {"id": 42},
            "chat": {"id": 42, "type": "private"},
            "text": "/say in telegram",
            "message_thread_id": 7,
            "is_topic_message": True,
        },
    }
    token = {"X-Telegram-Bot-Api-Secret-Token": PLAIN}
    assert (await http.post("/hooks/bot", json=update, headers=token)).status_code == 200

    async def replied() -> bool:
        return [one["text"] for one in replies(receiver, "42:7")] == ["in telegram"]

    await until(replied)


async def test_who_is_not_known_gets_nothing_in_and_is_noted(
    http: httpx2.AsyncClient, stack: Stack
) -> None:
    body = b'{"text": "/say no"}'
    assert (await http.post("/hooks/nobody", content=body)).status_code == 404
    refused = await http.post("/hooks/ci", content=body, headers=slack(body))
    assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")
    assert SECRET not in refused.text

    async def noted() -> bool:
        query = select(audit.c.arguments).where(audit.c.hook == "ACCESS")
        found = await stack.client.store.database.read(lambda c: list(c.scalars(query)))
        return any("webhook ci" in arguments for arguments in found)

    await until(noted)
    wrong = await post(http, "ci", {"text": ""}, "d-9")
    assert (wrong.status_code, wrong.json()["code"]) == (400, "invalid_argument")


async def test_a_delivery_is_durable_without_a_worker_and_its_answer_survives_a_kill(
    http: httpx2.AsyncClient, stack: Stack, receiver: Receiver
) -> None:
    key = "default:ci/bob~channel~out~peer~bob~thread~kill"
    stack.worker.kill()
    said = {"text": "/say after all", "user": "bob", "thread": "kill"}
    taken = await post(http, "ci", said, "k-1")
    assert (taken.status_code, taken.json()["status"]) == (200, "accepted")
    # The turn is committed and the receiver not ready: the process dies on the way out.
    before = len(receiver.requests)
    receiver.answers.append("503 Busy\r\nRetry-After: 3")
    stack.worker.start()
    await answered(stack, key, "after all")

    async def asked() -> bool:
        return len(receiver.requests) > before

    await until(asked)
    stack.worker.kill()
    stack.worker.start()

    async def left() -> bool:
        return await stack.client.store.replies.owed(key, message_id("ci", "k-1")) is None

    await until(left)
    told = [request for request in receiver.requests[before:] if b"after all" in request.body]
    assert len(told) == 2  # the one that was refused, and the one that was taken
    assert len({request.headers["idempotency-key"] for request in told}) == 1


async def test_a_receiver_that_was_away_gets_the_answer_with_upkeep(
    http: httpx2.AsyncClient,
    stack: Stack,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = "default:ci/bob~channel~out~peer~bob~thread~away"
    # It asks for more patience than a delivery has.
    receiver.answers.append("503 Busy\r\nRetry-After: 3600")
    before = len(receiver.requests)
    await post(http, "ci", {"text": "/say late", "user": "bob", "thread": "away"}, "a-1")
    await answered(stack, key, "late")
    due = message_id("ci", "a-1")

    async def failed() -> bool:
        entry = await stack.client.store.deliveries.of(key, f"reply/{due}")
        return entry is not None and entry.state is DeliveryState.FAILED

    await until(failed)
    store, settings = stack.client.store, stack.settings
    courier = Courier(store, settings.channels, settings.home)
    upkeep = Replying(store, Guard(settings), courier)
    # Its own workflow is to have its time first.
    await upkeep.deliver_left_behind()
    assert len(receiver.requests) == before + 1
    monkeypatch.setattr(replying, "PATIENCE", timedelta(0))
    for _ in range(2):
        await upkeep.deliver_left_behind()
    assert len(receiver.requests) == before + 2
    assert await store.replies.owed(key, due) is None


async def test_what_a_reset_has_discarded_may_be_delivered_again(
    http: httpx2.AsyncClient, stack: Stack, receiver: Receiver
) -> None:
    key = "default:ci/bob~channel~out~peer~bob~thread~again"
    await stack.client.send(key, "/sleep 60")
    said = {"text": "/say anew", "user": "bob", "thread": "again"}
    assert (await post(http, "ci", said, "r-1")).json()["status"] == "accepted"
    assert await stack.client.reset(key) == 1
    assert (await post(http, "ci", said, "r-1")).json()["status"] == "accepted"

    async def replied() -> bool:
        return "anew" in [one["text"] for one in replies(receiver, "bob")]

    await until(replied)
