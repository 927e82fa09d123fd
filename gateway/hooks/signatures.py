"""Whether a request is whose it says it is.

Invariant: the signature covers the very bytes that are read, and the time; secrets are compared in
constant time. What is refused is told in one way, whatever was wrong.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Mapping

from perdure.config.webhooks import HookKind, WebhookSettings, key_of
from perdure.domain.errors import Unauthenticated

#: Slack's version of its scheme: https://api.slack.com/authentication/verifying-requests-from-slack
_SLACK = "v0"
#: https://www.standardwebhooks.com: other versions, as those of public keys, are passed over.
_STANDARD = "v1"


def verify(hook: WebhookSettings, headers: Mapping[str, str], body: bytes) -> None:
    """Check the signature of a request.

    Args:
        hook: the settings it came to.
        headers: its headers, by names in lower case.
        body: its body, as it was sent.

    Raises:
        Unauthenticated: when it is not signed, or not with this secret, or too long ago.
    """
    match hook.kind:
        case HookKind.SLACK:
            good = _slack(hook, headers, body)
        case HookKind.TELEGRAM:
            good = _telegram(hook, headers)
        case HookKind.GENERIC:
            good = _standard(hook, headers, body)
    if not good:
        raise Unauthenticated(
            "The request is not signed as this webhook asks for.",
            "Check the secret, and the clock of the sender.",
        )


def signed(key: bytes, delivery_id: str, timestamp: int, body: bytes) -> str:
    """The `webhook-signature` of a request, for senders."""
    content = f"{delivery_id}.{timestamp}.".encode() + body
    digest = hmac.new(key, content, hashlib.sha256).digest()
    return f"{_STANDARD},{base64.b64encode(digest).decode()}"


def _standard(hook: WebhookSettings, headers: Mapping[str, str], body: bytes) -> bool:
    delivery_id = headers.get("webhook-id", "")
    timestamp = _recent(headers.get("webhook-timestamp", ""), hook.tolerance)
    if not delivery_id or timestamp is None:
        return False
    expected = signed(key_of(hook.secret), delivery_id, timestamp, body)
    # Several, while a sender changes its secret.
    given = headers.get("webhook-signature", "").split(" ")
    return any(_same(one, expected) for one in given)


def _slack(hook: WebhookSettings, headers: Mapping[str, str], body: bytes) -> bool:
    timestamp = _recent(headers.get("x-slack-request-timestamp", ""), hook.tolerance)
    if timestamp is None:
        return False
    content = f"{_SLACK}:{timestamp}:".encode() + body
    expected = hmac.new(key_of(hook.secret), content, hashlib.sha256).hexdigest()
    return _same(headers.get("x-slack-signature", ""), f"{_SLACK}={expected}")


def _telegram(hook: WebhookSettings, headers: Mapping[str, str]) -> bool:
    given = headers.get("x-telegram-bot-api-secret-token", "")
    return _same(given, hook.secret.get_secret_value())


def _recent(timestamp: str, tolerance: float) -> int | None:
    """A Unix time in seconds, if it is one and about now."""
    if not (timestamp.isascii() and timestamp.isdigit()) or len(timestamp) > 12:
        return None
    return int(timestamp) if abs(time.time() - int(timestamp)) <= tolerance else None


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())
