"""The `[webhooks.NAME]` tables: who may call in, and where what they say goes.

Invariant: settings that load can be verified against; showing them, or an error about them, shows
no secret.
"""

from __future__ import annotations

import base64
import binascii
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from perdure.channels import ChannelName
from perdure.channels.settings import MIN_SECRET
from perdure.config.policies import LabelWord, Word
from perdure.domain.labels import Label

#: What a secret begins with whose rest is base64 (Standard Webhooks).
STANDARD = "whsec_"


class HookKind(StrEnum):
    """Whose format a webhook has."""

    #: Signed as Standard Webhooks are (standardwebhooks.com).
    GENERIC = "generic"
    SLACK = "slack"
    TELEGRAM = "telegram"


class WebhookSettings(BaseModel):
    """One `[webhooks.NAME]` table, served at `/hooks/NAME`."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    kind: HookKind = HookKind.GENERIC
    #: The signing secret; of Telegram, the `secret_token` that was set with the webhook.
    secret: SecretStr
    #: Who answers; None is the default agent.
    agent: Word | None = None
    #: Whose sessions they are.
    tenant: Word = "default"
    #: The level of what is sent here.
    label: LabelWord = Label.PUBLIC
    #: The channel through which answers go back; None sends none.
    channel: ChannelName | None = None
    #: How many seconds old, or ahead, a signature may be.
    tolerance: float = Field(300, ge=1, le=3_600, allow_inf_nan=False)

    @field_validator("kind", mode="before")
    @classmethod
    def _known_kind(cls, value: Any) -> HookKind:
        try:
            return HookKind(value)
        except ValueError:
            raise ValueError(f"must be one of {', '.join(HookKind)}") from None

    @field_validator("secret")
    @classmethod
    def _long_enough(cls, value: SecretStr) -> SecretStr:
        try:
            long = len(key_of(value)) >= MIN_SECRET
        except binascii.Error:
            raise ValueError(f"begins with {STANDARD} and is no base64") from None
        if not long:
            raise ValueError(f"must have {MIN_SECRET} characters or more")
        return value


def key_of(secret: SecretStr) -> bytes:
    """The key that a secret stands for: what follows `whsec_` in base64, else the text itself.

    Raises:
        binascii.Error: when what follows is no base64.
    """
    text = secret.get_secret_value()
    if text.startswith(STANDARD):
        return base64.b64decode(text.removeprefix(STANDARD), validate=True)
    return text.encode()
