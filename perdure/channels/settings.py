"""The `[channels.NAME]` tables, and the one rule for what may flow through a channel.

Invariant: settings that load can be delivered to in principle, and showing them, or an error
about them, shows no URL and no secret.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    field_validator,
    model_validator,
)

from perdure.channels.urls import Service, Target, Webhook, check_address, parse
from perdure.domain.labels import Label, meet

#: Long enough that nobody finds it by trying.
MIN_SECRET = 16

ChannelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
RecipientName = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class Guarantee(StrEnum):
    """What a delivery does when it cannot tell whether it was delivered."""

    AT_LEAST_ONCE = "at-least-once"
    AT_MOST_ONCE = "at-most-once"


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class RecipientSettings(_Table):
    """One `[channels.NAME.recipients.NAME]` table."""

    #: Where the recipient is found; None is the recipient's name itself.
    address: str | None = None
    #: The highest label the recipient may read.
    level: Label = Label.PUBLIC

    @field_validator("level", mode="before")
    @classmethod
    def _known_label(cls, value: Any) -> Any:
        return _label(value)


class ChannelSettings(_Table):
    """One `[channels.NAME]` table: where a channel leads, and what may flow there."""

    #: `console:`, `file:PATH`, `smtp://`, `smtps://`, `webhook+https://`, or any apprise URL.
    url: SecretStr
    #: The key of a webhook's signature.
    secret: SecretStr | None = None
    #: The highest label that may pass the channel, whoever receives it.
    level: Label = Label.PUBLIC
    recipients: dict[RecipientName, RecipientSettings] = Field(default_factory=dict)
    #: Whether a message that may have been delivered is sent again.
    delivery: Guarantee = Guarantee.AT_MOST_ONCE

    @property
    def target(self) -> Target:
        """What the URL says."""
        return parse(self.url.get_secret_value())

    def address_of(self, recipient: str) -> str:
        """The configured address of `recipient`, else the name itself."""
        known = self.recipients.get(recipient)
        return recipient if known is None or known.address is None else known.address

    @field_validator("level", mode="before")
    @classmethod
    def _known_label(cls, value: Any) -> Any:
        return _label(value)

    @field_validator("delivery", mode="before")
    @classmethod
    def _known_guarantee(cls, value: Any) -> Any:
        try:
            return Guarantee(value)
        except ValueError:
            raise ValueError(f"must be one of {', '.join(Guarantee)}") from None

    # After validation of the whole table, so that the refused input is not the URL itself.
    @model_validator(mode="after")
    def _fits_together(self) -> ChannelSettings:
        try:
            target = self.target
        except ValueError as error:
            raise ValueError(f"is refused: {error}") from None
        secret = "" if self.secret is None else self.secret.get_secret_value()
        if isinstance(target, Webhook) and len(secret) < MIN_SECRET:
            raise ValueError(f"is a webhook and must have a secret of {MIN_SECRET} characters")
        if not isinstance(target, Webhook) and self.secret is not None:
            raise ValueError("has a secret, which only a webhook may have")
        for name, recipient in self.recipients.items():
            _check_recipient(target, name, recipient)
        return self


def effective_level(channel: ChannelSettings, recipient: str) -> Label:
    """The highest label that may reach `recipient` through `channel`.

    The lower of the channel's level and the recipient's; a recipient that is not configured by
    that very name is PUBLIC, also when another one's address is the same.
    """
    known = channel.recipients.get(recipient)
    return meet(channel.level, Label.PUBLIC if known is None else known.level)


def _label(value: Any) -> Label:
    try:
        return Label(value)
    except ValueError:
        raise ValueError(f"must be one of {', '.join(Label)}") from None


def _check_recipient(target: Target, name: str, recipient: RecipientSettings) -> None:
    if recipient.address is not None and isinstance(target, Service) and not target.addressed:
        raise ValueError(
            f"gives the recipient {name!r} an address, which its url must take as {{recipient}}"
        )
    try:
        check_address(target, name if recipient.address is None else recipient.address)
    except ValueError as error:
        raise ValueError(f"has a recipient {name!r} whose address {error}") from None
