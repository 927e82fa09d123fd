"""The webhook channel: a signed HTTP request whose receiver can tell a repeat from a new one.

Invariant: the signature covers the very bytes that are sent and the time they were sent. No
redirect is followed: what is signed for one receiver goes to no other.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2

from perdure.channels.outcomes import (
    Carrier,
    DeliveryFailed,
    DeliveryRefused,
    DeliveryUnknown,
    Parcel,
    Receipt,
)

_TIMEOUT = httpx2.Timeout(20.0, connect=10.0)

#: The receiver says: not now. It has not taken the message.
_NOT_NOW = frozenset({408, 425, 429, 500, 503})
#: A gateway says that it got no answer from behind it, where the message may have arrived.
_NO_ANSWER = frozenset({502, 504})

_CHECK_URL = "An operator must check the url of the channel and its receiver."


def webhook(url: str, secret: str) -> Carrier:
    """The carrier of `webhook+https://` and `webhook+http://`. 2xx confirms the delivery."""
    key = secret.encode()

    async def deliver(parcel: Parcel) -> Receipt:
        body = body_of(parcel)
        timestamp = str(int(time.time()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "perdure",
            "Idempotency-Key": parcel.delivery_id,
            "X-Perdure-Timestamp": timestamp,
            "X-Perdure-Signature": signature(key, timestamp, body),
        }
        _sort(*await _post(url, body, headers))
        return Receipt(confirmed=True)

    return deliver


def body_of(parcel: Parcel) -> bytes:
    """The request's body: JSON in UTF-8."""
    return json.dumps(
        {
            "delivery_id": parcel.delivery_id,
            "channel": parcel.channel,
            "recipient": parcel.address,
            "text": parcel.text,
        },
        ensure_ascii=False,
    ).encode()


def signature(key: bytes, timestamp: str, body: bytes) -> str:
    """`sha256=` and the hexadecimal HMAC-SHA256 of `<timestamp>.<body>`, for the receiver."""
    return "sha256=" + hmac.new(key, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def seconds_of(retry_after: str | None) -> float | None:
    """A Retry-After header in seconds from now: a number or a date; None if it is neither."""
    if retry_after is None:
        return None
    if retry_after.isascii() and retry_after.isdigit():
        # Far beyond any patience, and small enough for a float.
        return float(retry_after[:12])
    try:
        moment = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


async def _post(url: str, body: bytes, headers: dict[str, str]) -> tuple[int, str | None]:
    """Status and Retry-After of one request, on a connection of its own."""
    try:
        async with (
            httpx2.AsyncClient(timeout=_TIMEOUT, follow_redirects=False) as client,
            # What the receiver writes is of no use, and may be endless: it is not read.
            client.stream("POST", url, content=body, headers=headers) as response,
        ):
            return response.status_code, response.headers.get("Retry-After")
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
        raise DeliveryFailed("The receiver cannot be reached.") from error
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise DeliveryRefused("The channel's url cannot be used.", _CHECK_URL) from error
    except httpx2.HTTPError as error:
        raise DeliveryUnknown("The receiver was sent the message and did not answer.") from error


def _sort(status: int, retry_after: str | None) -> None:
    if 200 <= status < 300:
        return
    if status in _NO_ANSWER:
        raise DeliveryUnknown(f"A gateway before the receiver got no answer (status {status}).")
    if status in _NOT_NOW:
        raise DeliveryFailed(
            f"The receiver does not take the message now (status {status}).",
            retry_after=seconds_of(retry_after),
        )
    raise DeliveryRefused(f"The receiver refuses the message (status {status}).", _CHECK_URL)
