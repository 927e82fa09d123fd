"""Which session a request goes to, and the id that its message has for ever.

Invariant: the same request sent again is the same message in the same session, by the
`Idempotency-Key` it carries, or else by the retry count that OpenAI's clients send. A session is
always of the caller's own tenant.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from datetime import timedelta

from fastapi import Request
from ulid import ULID

from gateway.bounds import DEFAULT_TENANT
from gateway.http.openai.refusals import BadRequest
from gateway.http.parts import Gateway
from perdure.config import Settings
from perdure.domain.ids import check_message_id
from perdure.domain.keys import Marker, SessionKey
from perdure.domain.messages import Frozen
from perdure.store.clock import now

#: The header that names a session, in requests and in every answer.
SESSION_HEADER = "X-Perdure-Session"
#: Whose a conversation is that names nobody.
NOBODY = "openai"
#: OpenAI's clients wait ten minutes and try three times.
_REPEATED_WITHIN = timedelta(hours=1)
_DIGEST = 24
_RESPONSE = "resp_"


class Choice(Frozen):
    """Where a message goes. `named`: the caller goes on with a session of its own choice."""

    session_key: str
    message_id: str
    named: bool


async def choose(
    gateway: Gateway, request: Request, agent: str, user: str | None, previous: str | None = None
) -> Choice:
    """The session and the message id of a request.

    Raises:
        BadRequest: for a `previous_response_id` that names no session.
        InvalidArgument: for a session key or an idempotency key that cannot be one.
    """
    tenant = gateway.caller.tenant or DEFAULT_TENANT
    digest = _digest(gateway, await request.body(), request.headers)
    idempotency_key = request.headers.get("idempotency-key")
    named = request.headers.get(SESSION_HEADER) or previous
    if named is not None:
        key = str(SessionKey.parse(named))
    elif user is not None:
        key = _of_user(gateway.client.settings, tenant, user, agent)
    else:
        begin = SessionKey(tenant=tenant, user=gateway.caller.key_id or NOBODY)
        if idempotency_key is not None:
            thread = hashlib.sha256(f"{gateway.caller.name}\n{idempotency_key}".encode())
            key = f"{begin}~{Marker.THREAD}~{thread.hexdigest()[:_DIGEST]}"
        else:
            key = await _conversation(gateway, request, f"{begin}~{Marker.THREAD}~{digest}-")
    if idempotency_key is not None:
        message_id = check_message_id(idempotency_key)
    else:
        message_id = await _message(gateway, request, key, f"oai_{digest}_")
    return Choice(session_key=key, message_id=message_id, named=bool(named or user))


def response_id(session_key: str, message_id: str) -> str:
    """The id of the response to a message: it names the session and the message."""
    named = base64.urlsafe_b64encode(f"{session_key}\n{message_id}".encode()).decode()
    return f"{_RESPONSE}{named.rstrip('=')}"


def named_by(response: str, param: str = "previous_response_id") -> tuple[str, str]:
    """The session and the message that a response's id names.

    Raises:
        BadRequest: when it names none.
    """
    encoded = response.removeprefix(_RESPONSE)
    try:
        if encoded == response:
            raise ValueError("no id of a response")
        padded = encoded + "=" * (-len(encoded) % 4)
        named = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error):
        named = ""
    session_key, _, message_id = named.partition("\n")
    if not session_key or not message_id:
        raise BadRequest(param, "There is no such response.", "Ids begin with resp_.", "not_found")
    return session_key, message_id


def _of_user(settings: Settings, tenant: str, user: str, agent: str) -> str:
    """The session of a user with an agent: with each agent one of its own."""
    other = agent != settings.default_agent
    markers = ((Marker.AGENT, agent),) if other else ()
    return str(SessionKey(tenant=tenant, user=user, markers=markers))


async def _conversation(gateway: Gateway, request: Request, prefix: str) -> str:
    known = None
    if _is_retry(request):
        known = await gateway.client.store.repeats.session(prefix, now() - _REPEATED_WITHIN)
    return known or f"{prefix}{ULID()}"


async def _message(gateway: Gateway, request: Request, session_key: str, prefix: str) -> str:
    known = None
    if _is_retry(request):
        since = now() - _REPEATED_WITHIN
        known = await gateway.client.store.repeats.message(session_key, prefix, since)
    return known or f"{prefix}{ULID()}"


def _is_retry(request: Request) -> bool:
    return request.headers.get("x-stainless-retry-count", "0") != "0"


def _digest(gateway: Gateway, body: bytes, headers: Mapping[str, str]) -> str:
    """What is the same in every try of a request, and of another caller's differs."""
    named = headers.get(SESSION_HEADER) or ""
    said = f"{gateway.caller.name}\n{gateway.caller.key_id}\n{named}\n".encode() + body
    return hashlib.sha256(said).hexdigest()[:_DIGEST]
