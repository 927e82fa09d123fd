"""What a request says: a message for a session, or nothing that concerns us.

Invariant: total. Whatever is signed is understood, ignored with a reason, or refused as malformed;
what a service adds to its format changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from perdure.config.webhooks import HookKind
from perdure.domain.errors import InvalidArgument
from perdure.domain.messages import Frozen

#: Whose a generic message is that names nobody.
NOBODY = "webhook"

_Word = Annotated[str, Field(min_length=1, max_length=128)]


class Arrived(Frozen):
    """A message. `delivery_id` is the same however often the service sends it.

    `user` is who speaks, `peer` where answers go, `guild` the group that it was said in, `thread`
    the thread there.
    """

    delivery_id: str
    text: str
    user: str
    peer: str
    guild: str | None = None
    thread: str | None = None


class Ignored(Frozen):
    """Nothing for a session."""

    reason: str


class Challenge(Frozen):
    """The service asks whether we are there, and wants this back."""

    challenge: str


Understood = Arrived | Ignored | Challenge


def understood(kind: HookKind, headers: Mapping[str, str], body: bytes) -> Understood:
    """What a request that was verified says.

    Raises:
        InvalidArgument: when it has not the format of its kind.
    """
    try:
        match kind:
            case HookKind.SLACK:
                return _slack(SlackRequest.model_validate_json(body))
            case HookKind.TELEGRAM:
                return _telegram(TelegramUpdate.model_validate_json(body))
            case HookKind.GENERIC:
                return _generic(headers["webhook-id"], body)
    except ValidationError as error:
        found = error.errors()[0]
        place = ".".join(map(str, found["loc"])) or "the body"
        raise InvalidArgument(
            f"The request is none of kind {kind}: {place}: {found['msg']}.", "Check webhooks.kind."
        ) from None


# Generic ---------------------------------------------------------------------------------------


class GenericMessage(BaseModel):
    """The body of a generic webhook that says where its message belongs; all but the text may be
    left out."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    text: str = Field(min_length=1)
    user: _Word = NOBODY
    peer: _Word | None = None
    guild: _Word | None = None
    thread: _Word | None = None


def _generic(delivery_id: str, body: bytes) -> Understood:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidArgument(
            "The body is not JSON, or is nested too deep.", "Send a JSON object."
        ) from None
    if isinstance(content, dict) and isinstance(content.get("text"), str):
        said = GenericMessage.model_validate(content)
        return Arrived(
            delivery_id=delivery_id,
            text=said.text,
            user=said.user,
            peer=said.peer or said.user,
            guild=said.guild,
            thread=said.thread,
        )
    # An event in the service's own words is told in them.
    text = json.dumps(content, ensure_ascii=False, indent=1)
    return Arrived(delivery_id=delivery_id, text=text, user=NOBODY, peer=NOBODY)


# Slack -----------------------------------------------------------------------------------------


class SlackEvent(BaseModel):
    """An event of Slack's Events API; only messages of people concern us."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    type: str
    subtype: str | None = None
    text: str | None = None
    user: str | None = None
    bot_id: str | None = None
    channel: str | None = None
    channel_type: str | None = None
    ts: str | None = None
    thread_ts: str | None = None


class SlackRequest(BaseModel):
    """A request of Slack's Events API."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    type: str
    challenge: str | None = None
    team_id: str = ""
    event: SlackEvent | None = None


#: Messages that people write; all other subtypes tell of joins, edits and the like.
_WRITTEN = frozenset({None, "file_share", "thread_broadcast", "me_message"})


def _slack(request: SlackRequest) -> Understood:
    if request.type == "url_verification" and request.challenge is not None:
        return Challenge(challenge=request.challenge)
    event = request.event
    if request.type != "event_callback" or event is None:
        return Ignored(reason=f"the request is of type {request.type[:64]!r}")
    if event.type not in ("message", "app_mention") or event.subtype not in _WRITTEN:
        return Ignored(reason="the event is no new message")
    if event.bot_id is not None or event.user is None:
        return Ignored(reason="no person wrote it")
    if not event.text or not event.text.strip() or event.channel is None or event.ts is None:
        return Ignored(reason="the message has no text")
    direct = event.channel_type == "im" or event.channel.startswith("D")
    return Arrived(
        # A mention comes as two events of different ids, and is one message: that of its time.
        delivery_id=f"{request.team_id}/{event.channel}/{event.ts}",
        text=event.text,
        user=event.user,
        peer=event.channel,
        guild=None if direct else request.team_id or event.channel,
        thread=event.thread_ts,
    )


# Telegram --------------------------------------------------------------------------------------


class TelegramUser(BaseModel):
    """Who speaks."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: int
    is_bot: bool = False


class TelegramChat(BaseModel):
    """Where it was said."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    id: int
    type: str = "private"


class TelegramMessage(BaseModel):
    """A message; of pictures and the like, what is written below them."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    chat: TelegramChat
    sender: TelegramUser | None = Field(None, alias="from")
    text: str | None = None
    caption: str | None = None
    message_thread_id: int | None = None
    is_topic_message: bool = False


class TelegramUpdate(BaseModel):
    """An update of Telegram's Bot API."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    update_id: int
    message: TelegramMessage | None = None
    channel_post: TelegramMessage | None = None


def _telegram(update: TelegramUpdate) -> Understood:
    message = update.message or update.channel_post
    if message is None:
        return Ignored(reason="the update is no new message")
    if message.sender is not None and message.sender.is_bot:
        return Ignored(reason="no person wrote it")
    text = message.text or message.caption or ""
    if not text.strip():
        return Ignored(reason="the message has no text")
    chat = str(message.chat.id)
    thread = message.message_thread_id if message.is_topic_message else None
    return Arrived(
        delivery_id=str(update.update_id),
        text=text,
        user=chat if message.sender is None else str(message.sender.id),
        peer=chat,
        guild=None if message.chat.type == "private" else chat,
        thread=None if thread is None else str(thread),
    )
