"""From a request at `/hooks/NAME` to a message in a session.

Invariant: a delivery is one message however often it comes, since the message's id follows from the
delivery's. It is answered as soon as it is durable, whether a worker is there or not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

from gateway.client import SessionClient
from gateway.hooks.formats import Arrived, Challenge, Ignored, understood
from gateway.hooks.signatures import verify
from perdure.config.webhooks import HookKind, WebhookSettings
from perdure.domain.access import Caller, Scope
from perdure.domain.errors import NotFound, Unauthenticated
from perdure.domain.keys import Marker, SessionKey
from perdure.domain.messages import Frozen
from perdure.domain.replies import ReplyTo


class Taken(Frozen):
    """What became of a request."""

    status: Literal["accepted", "duplicate", "ignored"]
    reason: str | None = None


async def receive(
    client: SessionClient, name: str, headers: Mapping[str, str], body: bytes
) -> Taken | Challenge:
    """Take a request in.

    Args:
        client: the gateway's own; what is sent is sent in the name of the webhook.
        name: the webhook, as its table is called.
        headers: of the request, by names in lower case.
        body: of the request, as it was sent.

    Raises:
        NotFound: when there is no such webhook.
        Unauthenticated: when the signature is not good.
        InvalidArgument: when it is none of its kind.
        PerdureError: as `SessionClient.deliver`.
    """
    hook = client.settings.webhooks.get(name)
    if hook is None:
        raise NotFound("There is no such webhook.", "Webhooks are [webhooks.NAME] in perdure.toml.")
    try:
        verify(hook, headers, body)
    except Unauthenticated:
        client.refusals.note(f"webhook {name}", "delivery", "Its signature is not good.")
        raise
    found = understood(hook.kind, headers, body)
    if isinstance(found, Challenge):
        return found
    if isinstance(found, Ignored):
        return Taken(status="ignored", reason=found.reason)
    caller = Caller(
        name=f"webhook {name}",
        tenant=hook.tenant,
        scopes=frozenset({Scope.CHAT}),
        clearance=hook.label,
    )
    ticket = await client.on_behalf_of(caller).deliver(
        str(session_key(name, hook, found)),
        _said(found),
        agent=hook.agent,
        message_id=message_id(name, found.delivery_id),
        label=hook.label,
        reply_to=_back(hook, found),
    )
    return Taken(status="duplicate" if ticket.duplicate else "accepted")


def session_key(name: str, hook: WebhookSettings, arrived: Arrived) -> SessionKey:
    """The session of a message: of its sender, or of the group that it was said in.

    The webhook's name is part of the user, since another service may have a user of the same id.
    """
    who = arrived.user if arrived.guild is None else arrived.peer
    markers = [
        (Marker.CHANNEL, hook.channel),
        (Marker.GUILD, arrived.guild),
        (Marker.PEER, arrived.peer),
        (Marker.THREAD, arrived.thread),
    ]
    named = tuple((marker, value) for marker, value in markers if value is not None)
    return SessionKey(tenant=hook.tenant, user=f"{name}/{who}", markers=named)


def message_id(name: str, delivery_id: str) -> str:
    """The id of the message that a delivery is, for ever."""
    digest = hashlib.sha256(delivery_id.encode(errors="replace")).hexdigest()
    return f"hook_{name}_{digest[:32]}"


def _said(arrived: Arrived) -> str:
    """The text, and in a group who says it."""
    if arrived.guild is None:
        return arrived.text
    return f"[{arrived.user} writes]\n{arrived.text}"


def _back(hook: WebhookSettings, arrived: Arrived) -> ReplyTo | None:
    if hook.channel is None:
        return None
    # What a generic webhook calls a thread is ours alone.
    thread = None if hook.kind is HookKind.GENERIC else arrived.thread
    return ReplyTo(channel=hook.channel, recipient=arrived.peer, thread=thread)
