"""Webhooks and apprise against a real receiver: signed, repeated only where that is right."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.channels import courier
from perdure.channels.outcomes import (
    DeliveryFailed,
    DeliveryRefused,
    DeliveryUnknown,
    Receipt,
)
from perdure.channels.webhook import seconds_of
from tests.support.channels import SECRET, SECRETS, channel, hook, no_backoff, parcel, send
from tests.support.outside import HOST, http_receiver


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier, "_backoff", no_backoff)


# Webhook
async def test_a_receiver_can_verify_what_it_gets() -> None:
    async with http_receiver() as receiver:
        assert await send(hook(receiver.port), parcel("Grüße")) == Receipt(confirmed=True)
    (got,) = receiver.requests
    signed = got.headers["x-perdure-timestamp"].encode() + b"." + got.body
    expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert got.headers["x-perdure-signature"] == f"sha256={expected}"
    assert got.headers["idempotency-key"] == "dlv_1"
    assert json.loads(got.body) == {
        "delivery_id": "dlv_1",
        "channel": "ops",
        "recipient": "bob@example.org",
        "text": "Grüße",
    }


@pytest.mark.parametrize(
    "answer", ["500 Oops", "503 Busy\r\nRetry-After: 0", "429 Slow\r\nRetry-After: 1"]
)
async def test_a_receiver_that_is_not_ready_gets_it_again_under_the_same_key(answer: str) -> None:
    async with http_receiver(answer) as receiver:
        assert await send(hook(receiver.port)) == Receipt(confirmed=True)
    assert [got.headers["idempotency-key"] for got in receiver.requests] == ["dlv_1", "dlv_1"]


async def test_a_receiver_that_is_never_ready_is_given_up_on() -> None:
    async with http_receiver(*["500 Oops"] * 9) as receiver:
        with pytest.raises(DeliveryFailed):
            await send(hook(receiver.port))
    assert len(receiver.requests) == courier.ATTEMPTS


async def test_a_receiver_that_asks_for_more_than_our_patience_is_not_asked_again() -> None:
    async with http_receiver("503 Busy\r\nRetry-After: 3600") as receiver:
        with pytest.raises(DeliveryFailed):
            await send(hook(receiver.port))
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("status", ["400 Bad", "401 No", "404 Gone", "413 Long", "501 What"])
async def test_a_refusal_of_the_receiver_is_final(status: str) -> None:
    async with http_receiver(status) as receiver:
        with pytest.raises(DeliveryRefused):
            await send(hook(receiver.port))
    assert len(receiver.requests) == 1


async def test_a_redirect_is_not_followed() -> None:
    async with http_receiver() as other:
        there = f"302 Found\r\nLocation: http://{HOST}:{other.port}/"
        async with http_receiver(there) as receiver:
            with pytest.raises(DeliveryRefused):
                await send(hook(receiver.port))
    assert other.requests == []


@pytest.mark.parametrize("answer", ["reset", "504 Gateway", "502 Gateway", "hang"])
async def test_what_may_have_arrived_is_sent_again_only_where_that_is_wanted(
    answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(courier, "ATTEMPT_SECONDS", 1.0)
    async with http_receiver(answer) as receiver:
        with pytest.raises(DeliveryUnknown):
            await send(hook(receiver.port))
    assert len(receiver.requests) == 1
    async with http_receiver(answer) as receiver:
        assert await send(hook(receiver.port, delivery="at-least-once")) == Receipt(confirmed=True)
    assert [got.headers["idempotency-key"] for got in receiver.requests] == ["dlv_1", "dlv_1"]


async def test_doubt_is_not_taken_back_by_a_later_failure() -> None:
    async with http_receiver("reset", "400 Bad") as receiver:
        with pytest.raises(DeliveryUnknown):
            await send(hook(receiver.port, delivery="at-least-once"))
    assert len(receiver.requests) == 2


async def test_no_error_shows_a_part_of_the_url() -> None:
    async with http_receiver("401 No", "302 Found\r\nLocation: /T0PT0KEN", "reset") as receiver:
        settings = hook(receiver.port, "/T0PT0KEN?key=hunter2")
        for _ in range(3):
            with pytest.raises((DeliveryRefused, DeliveryUnknown)) as refused:
                await send(settings)
            assert not any(secret in str(refused.value) for secret in SECRETS)
    with pytest.raises(DeliveryFailed) as failed:
        await send(settings)
    assert not any(secret in str(failed.value) for secret in SECRETS)


@given(st.text())
@example("9" * 5_000)
@example("²")
@example("Wed, 21 Oct 2015 07:28:00 GMT")
@example("Wed, 21 Oct 9999 07:28:00 -9999")
def test_whatever_stands_in_retry_after_is_seconds_or_nothing(text: str) -> None:
    seconds = seconds_of(text)
    assert seconds is None or seconds >= 0


# Apprise
async def test_apprise_delivers_to_the_services_it_knows() -> None:
    async with http_receiver() as receiver:
        settings = channel(f"json://{HOST}:{receiver.port}/in")
        assert await send(settings, parcel("<b>\\n & 5%")) == Receipt()
    assert json.loads(receiver.requests[0].body)["message"] == "<b>\\n & 5%"


async def test_an_apprise_url_takes_the_recipient_as_one_part_of_its_path() -> None:
    async with http_receiver() as receiver:
        settings = channel(f"json://{HOST}:{receiver.port}/in/{{recipient}}")
        assert await send(settings, parcel(address="#ops")) == Receipt()
        for bad in ("../admin", "a,b", "a b", "a/b", "x?y=1", "x&to=eve"):
            with pytest.raises(DeliveryRefused):
                await send(settings, parcel(address=bad))
    assert [got.target for got in receiver.requests] == ["/in/%23ops"]


@pytest.mark.parametrize("answer", ["500 Oops", "401 No", "reset"])
async def test_a_failure_that_apprise_reports_is_of_unknown_outcome(answer: str) -> None:
    async with http_receiver(answer) as receiver:
        with pytest.raises(DeliveryUnknown):
            await send(channel(f"json://bob:hunter2@{HOST}:{receiver.port}/T0PT0KEN"))
    assert len(receiver.requests) == 1


async def test_apprise_follows_no_redirect() -> None:
    async with http_receiver() as other:
        there = f"302 Found\r\nLocation: http://{HOST}:{other.port}/"
        async with http_receiver(there) as receiver:
            with pytest.raises(DeliveryUnknown):
                await send(channel(f"json://{HOST}:{receiver.port}/"))
    assert other.requests == []
