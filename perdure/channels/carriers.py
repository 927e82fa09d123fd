"""Which carrier a channel's URL means."""

from __future__ import annotations

from pathlib import Path

from perdure.channels.console import console
from perdure.channels.json_lines import json_lines
from perdure.channels.mail import mail
from perdure.channels.outcomes import Carrier
from perdure.channels.settings import ChannelSettings
from perdure.channels.urls import Console, JsonLines, Mail, Service, Webhook
from perdure.channels.webhook import webhook


def carrier_of(name: str, settings: ChannelSettings, home: Path) -> Carrier:
    """The carrier of the channel `name`. Opens no connection.

    Raises:
        InvalidArgument: its URL cannot be delivered to.
    """
    target = settings.target
    match target:
        case Console():
            return console()
        case JsonLines(path):
            return json_lines(home, path)
        case Mail():
            return mail(target)
        case Webhook(url):
            secret = settings.secret
            return webhook(url, "" if secret is None else secret.get_secret_value())
        case Service():
            # It takes 0.2 s to load, and most homes have no such channel.
            from perdure.channels.service import service

            return service(name, target)
