"""What a channel's URL says, parsed in this one place.

Invariant: a URL may hold passwords and tokens in any of its parts, so no error raised here, and
no `repr` of what is returned, repeats any part of it but the scheme.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

#: Where an apprise URL takes the address of the recipient.
PLACEHOLDER = "{recipient}"

#: One recipient and nothing else, whatever the service: no separators of lists, paths or queries.
_SERVICE_ADDRESS = re.compile(r"[A-Za-z0-9_.@+#:!=-]{1,256}")
#: One plain ASCII mailbox without display name, comment, quoting or list.
_MAILBOX = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,253})")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)")
_WEBHOOK = "webhook+"


class StartTls(StrEnum):
    """Whether an unencrypted connection to a mail server is upgraded before anything is said."""

    #: Or else nothing is sent.
    REQUIRED = "required"
    #: If the server offers it.
    OFFERED = "offered"
    NEVER = "never"


@dataclass(frozen=True)
class Console:
    """`console:`: the standard output of the worker."""


@dataclass(frozen=True)
class JsonLines:
    """`file:PATH`: one line of JSON a message, appended to a file of the home folder."""

    path: str


@dataclass(frozen=True)
class Mail:
    """`smtp://` and `smtps://`: a mail server that takes messages for its recipients."""

    host: str
    port: int
    #: TLS from the first byte (`smtps://`).
    tls: bool
    starttls: StartTls
    user: str | None
    password: str | None = field(repr=False)
    sender: str
    subject: str


@dataclass(frozen=True)
class Webhook:
    """`webhook+https://` and `webhook+http://`: a receiver of signed HTTP requests."""

    url: str = field(repr=False)


@dataclass(frozen=True)
class Service:
    """Every other URL: one of the services that apprise knows."""

    url: str = field(repr=False)

    @property
    def addressed(self) -> bool:
        """Whether the URL takes the recipient's address; else it always goes to its targets."""
        return PLACEHOLDER in self.url


Target = Console | JsonLines | Mail | Webhook | Service


def parse(url: str) -> Target:
    """Where the channel with this URL delivers.

    Raises:
        ValueError: saying what is wrong without repeating the URL.
    """
    found = _SCHEME.match(url)
    if not found or not url.isprintable():
        raise ValueError("its url must be console:, file:PATH or SCHEME://…")
    scheme = found[0].lower()
    if scheme == "console":
        if url[found.end() :].strip(":/"):
            raise ValueError("its console: url must have nothing after the colon")
        return Console()
    if scheme == "file":
        return JsonLines(_path(url[found.end() + 1 :]))
    if scheme in ("smtp", "smtps"):
        return _mail(_split(url))
    if scheme in ("webhook+https", "webhook+http"):
        inner = url[len(_WEBHOOK) :]
        if _split(inner).fragment:
            raise ValueError("its webhook url must not have a #fragment")
        return Webhook(inner)
    if scheme.startswith("webhook"):
        raise ValueError("its webhook url must begin with webhook+https:// or webhook+http://")
    return _service(url)


def check_address(target: Target, address: str) -> None:
    """Refuse an address that does not name exactly one recipient of `target`.

    Raises:
        ValueError: saying what an address there looks like.
    """
    if not address or not address.isprintable() or len(address) > 320:
        raise ValueError("must be one line of 1 to 320 printable characters")
    if isinstance(target, Mail) and not _is_mailbox(address):
        raise ValueError("must be one plain mail address, as in bob@example.org")
    if isinstance(target, Service) and target.addressed and not _SERVICE_ADDRESS.fullmatch(address):
        raise ValueError("may hold only letters, digits and _ . @ + # : ! = -")


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        # The message of urllib's error quotes the URL.
        raise ValueError("its url has a host or port that is none") from None
    if not host:
        raise ValueError("its url must name a host")
    return parts


def _path(text: str) -> str:
    path = unquote(text.removeprefix("//"))
    if not path or path.endswith("/"):
        raise ValueError("its file: url must name a file, as in file:out/messages.jsonl")
    return path


def _mail(parts: SplitResult) -> Mail:
    if parts.path.strip("/"):
        raise ValueError("its mail url must have no path")
    tls = parts.scheme.lower() == "smtps"
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    unknown = set(options) - {"from", "subject", "starttls"}
    if unknown:
        raise ValueError("its mail url knows only the parameters from, subject and starttls")
    user = None if parts.username is None else unquote(parts.username)
    password = None if parts.password is None else unquote(parts.password)
    if (user is None) != (password is None):
        raise ValueError("its mail url must have both a user and a password, or neither")
    try:
        starttls = StartTls(
            options.get("starttls", StartTls.REQUIRED if user else StartTls.OFFERED)
        )
    except ValueError:
        raise ValueError(f"its mail url's starttls must be one of {', '.join(StartTls)}") from None
    sender = options.get("from", user or "")
    if not _is_mailbox(sender):
        raise ValueError("its mail url must have ?from=ADDRESS, one plain mail address")
    subject = options.get("subject", "A message from Perdure")
    if not subject.isprintable():
        raise ValueError("its mail url's subject must be one line")
    return Mail(
        host=parts.hostname or "",
        port=parts.port or (465 if tls else 25),
        tls=tls,
        starttls=starttls,
        user=user,
        password=password,
        sender=sender,
        subject=subject,
    )


def _service(url: str) -> Service:
    scheme, _, rest = url.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if not rest:
        raise ValueError("its url must be console:, file:PATH or SCHEME://…")
    if PLACEHOLDER in scheme or PLACEHOLDER in authority:
        # A model may choose the recipient; it must not choose the server, user or password.
        raise ValueError(f"its url may have {PLACEHOLDER} only behind the host")
    return Service(url)


def _is_mailbox(text: str) -> bool:
    local = text.partition("@")[0]
    dots = local.startswith(".") or local.endswith(".") or ".." in text
    return bool(_MAILBOX.fullmatch(text)) and not dots
