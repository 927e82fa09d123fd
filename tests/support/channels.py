"""Channels as tests configure them, and one attempt-with-retries through one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perdure.channels import ChannelSettings
from perdure.channels.carriers import carrier_of
from perdure.channels.courier import deliver
from perdure.channels.outcomes import Parcel, Receipt
from tests.support.outside import HOST

SECRET = "0123456789abcdef-secret"
#: What must be read nowhere but in a URL.
SECRETS = ("hunter2", "T0PT0KEN", SECRET)


def channel(url: str, **settings: Any) -> ChannelSettings:
    """The channel of a URL."""
    return ChannelSettings.model_validate({"url": url, **settings})


def hook(port: int, path: str = "/in", **settings: Any) -> ChannelSettings:
    """A webhook to a receiver of this machine."""
    return channel(f"webhook+http://{HOST}:{port}{path}", secret=SECRET, **settings)


def parcel(text: str = "It is done.", address: str = "bob@example.org") -> Parcel:
    """A message on its way out."""
    return Parcel(delivery_id="dlv_1", channel="ops", address=address, text=text)


async def send(
    settings: ChannelSettings, sent: Parcel | None = None, home: Path = Path("/nowhere")
) -> Receipt:
    """Deliver through a channel, with its retries and without the ledger."""
    repeat = settings.delivery == "at-least-once"
    return await deliver(carrier_of("ops", settings, home), sent or parcel(), repeat=repeat)


def no_backoff(_state: object) -> float:
    """A pause for tests; what the other side asks for is still waited for."""
    return 0.01
