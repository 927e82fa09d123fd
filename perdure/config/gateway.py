"""The `[gateway]` table: where HTTP clients find the sessions, and how they say who they are.

Invariant: what is not set keeps the gateway to this machine.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from perdure.config.policies import LabelWord, Table, Word
from perdure.domain.labels import Label


def _host(value: str) -> str:
    parts = urlsplit(f"//{value}")
    if not value or parts.netloc != value or parts.username or ":" in value.rpartition("]")[2]:
        raise ValueError("must be a name or an address without a port; IPv6 in brackets")
    return value.lower()


def _origin(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or f"{parts.scheme}://{parts.netloc}" != value:
        raise ValueError("must be an origin, as in https://chat.example.org, without a path")
    return value


def _network(value: str) -> str:
    try:
        ip_network(value)
    except ValueError:
        raise ValueError("must be an IP address, or a network as in 10.0.0.0/8") from None
    return value


def _file(value: str) -> str:
    if not Path(value).is_absolute():
        raise ValueError("must be an absolute path of a file")
    return value


FilePath = Annotated[str, AfterValidator(_file)]


class GatewaySettings(Table):
    """The `[gateway]` table."""

    #: The address it listens on: a loopback address, or one that other machines reach.
    host: Word = "127.0.0.1"
    #: None is any free port.
    port: int | None = Field(None, ge=0, le=65_535)
    #: What may be answered to those who ask here: people at this machine, and HTTP clients.
    level: LabelWord = Label.CONFIDENTIAL
    #: "auto" asks for a key as soon as others than this machine could ask: see `needs_keys`.
    keys: Literal["auto", "required"] = "auto"
    #: Names it may be called by beside those of the loopback, without a port.
    hosts: list[Annotated[str, AfterValidator(_host)]] = Field(default_factory=list)
    #: Origins of web pages that may call it (CORS).
    origins: list[Annotated[str, AfterValidator(_origin)]] = Field(default_factory=list)
    #: Proxies that are believed when they say who asks, and by which scheme.
    trusted_proxies: list[Annotated[str, AfterValidator(_network)]] = Field(default_factory=list)
    #: What it speaks TLS with: PEM files, the chain and its key.
    tls_certificate: FilePath | None = None
    tls_key: FilePath | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches the address it listens on."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_reachable(self) -> bool:
        """Whether others than this machine may reach it, through what forwards to it, too."""
        return bool(not self.is_loopback or self.hosts or self.trusted_proxies or self.origins)

    @property
    def needs_keys(self) -> bool:
        """Whether who asks must send a key."""
        return self.keys == "required" or self.is_reachable
