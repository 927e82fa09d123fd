"""Secrets known by their form: what providers issue, private keys, passwords in addresses.

Invariant: every expression here runs on RE2, those of detect-secrets too, so one text costs one
linear pass each. Only the expressions of detect-secrets are used: its scanner keeps settings in
globals, swaps expressions on shared plugins, and can ask providers over the network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from detect_secrets.plugins.aws import AWSKeyDetector
from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector
from detect_secrets.plugins.base import RegexBasedDetector
from detect_secrets.plugins.discord import DiscordBotTokenDetector
from detect_secrets.plugins.github_token import GitHubTokenDetector
from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
from detect_secrets.plugins.mailchimp import MailchimpDetector
from detect_secrets.plugins.openai import OpenAIDetector
from detect_secrets.plugins.pypi_token import PypiTokenDetector
from detect_secrets.plugins.sendgrid import SendGridDetector
from detect_secrets.plugins.slack import SlackDetector
from detect_secrets.plugins.square_oauth import SquareOAuthDetector
from detect_secrets.plugins.stripe import StripeDetector
from detect_secrets.plugins.telegram_token import TelegramBotTokenDetector
from detect_secrets.plugins.twilio import TwilioKeyDetector

from perdure.policy.findings import Span
from perdure.policy.patterns import over_image
from perdure.policy.shape import is_placeholder, is_wordy, mixing

_PLUGINS: tuple[type[RegexBasedDetector], ...] = (
    AWSKeyDetector,
    AzureStorageKeyDetector,
    DiscordBotTokenDetector,
    GitHubTokenDetector,
    GitLabTokenDetector,
    MailchimpDetector,
    OpenAIDetector,
    PypiTokenDetector,
    SendGridDetector,
    SlackDetector,
    SquareOAuthDetector,
    StripeDetector,
    TelegramBotTokenDetector,
    TwilioKeyDetector,
)

#: Nothing alphanumeric stands before a token, but the letter of a JSON escape may.
_BEFORE = r"(?:^|[^A-Za-z0-9]|\\[bfnrt])"

#: Longer bodies than any private key has: an RSA key of 16,384 bits takes 12,500 characters.
_KEY_BODY = 20_000

#: How far from an AWS key id its secret may stand, in characters.
_PAIR_DISTANCE = 400

_AWS_KEY_ID = "aws-access-key"
_AWS_SECRET = re.compile(rb"(?<![A-Za-z0-9/+=])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")

#: What stands between a header and the next footer only if they are of two texts.
_NOT_IN_A_KEY = re.compile(rb"-----BEGIN |\0")

_KEY_TEXT = re.compile(rb"(?:[A-Za-z0-9+/=:,.]|\s|\\[nr]){0,20000}")


def _anything(token: str) -> bool:
    return True


def _issued(token: str) -> bool:
    """Not words joined by dashes, as in `sk-ant-your-key-here`."""
    return not is_wordy(token)


def _random(token: str) -> bool:
    return any(map(str.isdigit, token)) and mixing(token) >= 0.15


@dataclass(frozen=True)
class _Form:
    """`pattern`'s first group is a secret if `accept` agrees."""

    kind: str
    pattern: str
    accept: Callable[[str], bool] = _anything


def _form(kind: str, body: str, accept: Callable[[str], bool] = _anything) -> _Form:
    return _Form(kind, f"{_BEFORE}({body})", accept)


_OWN = (
    _form("anthropic-key", r"sk-ant-[A-Za-z0-9_-]{12,}", _issued),
    _form("api-key", r"sk-(?:proj|svcacct|admin|or|lf)-[A-Za-z0-9_-]{16,}", _issued),
    _form("api-key", r"sk-[A-Za-z0-9]{20,}", _random),
    _form("github-token", r"gh[pousr]_[A-Za-z0-9_]{20,}", _issued),
    _form("github-token", r"github_pat_[A-Za-z0-9_]{20,}", _issued),
    _form("google-key", r"AIza[A-Za-z0-9_-]{35}"),
    _form("google-token", r"ya29\.[A-Za-z0-9_-]{20,}", _issued),
    _form("google-secret", r"GOCSPX-[A-Za-z0-9_-]{20,}", _issued),
    _form("slack-token", r"xox[abceoprs]-[A-Za-z0-9-]{10,}", _issued),
    _form("slack-token", r"xapp-[0-9]-[A-Za-z0-9-]{10,}", _issued),
    _form("hugging-face-token", r"hf_[A-Za-z0-9]{30,}", _random),
    _form("npm-token", r"npm_[A-Za-z0-9]{36}", _random),
    _form("digitalocean-token", r"do[opr]_v1_[0-9a-f]{64}"),
    _form("stripe-key", r"(?:[rs]k_(?:live|test)|whsec)_[A-Za-z0-9]{16,}", _issued),
    _form("artifactory-token", r"AKC[A-Za-z0-9]{40,}", _random),
    _form("age-key", r"AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    _form("databricks-token", r"dapi[0-9a-f]{32}\b"),
    _form("groq-key", r"gsk_[A-Za-z0-9]{30,}", _random),
    _form("xai-key", r"xai-[A-Za-z0-9]{30,}", _random),
    _form("json-web-token", r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"),
    _form("json-web-token", r"eyJ[A-Za-z0-9_-]{16,}(?:\.[A-Za-z0-9_-]*){4}"),
    _Form("putty-private-key", r"Private-Lines: [0-9]{1,4}\s+([A-Za-z0-9+/=\s]{20,})"),
    # RFC 3986: user information ends at the last "@" before a slash.
    _Form(
        "password-in-address",
        r"[A-Za-z0-9+.-]://[^\s/?#:@\"'<>`]*:([^\s/?#\"'<>`]+)@[A-Za-z0-9\[]",
        lambda password: not is_placeholder(password),
    ),
)

_KEY_HEADER = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"


def find_tokens(text: str, raw: bytes) -> Iterator[Span]:
    """Secrets by form in `text`; `raw` is its one-byte-a-character image."""
    scanned = 0
    for form in _forms():
        for match in over_image(form.pattern).finditer(raw):
            start, end = match.span(1)
            if not form.accept(text[start:end]):
                continue
            yield Span(start, end, form.kind)
            if form.kind == _AWS_KEY_ID:
                # What an earlier window has covered is not looked at again.
                begin = max(scanned, start - _PAIR_DISTANCE)
                scanned = end + _PAIR_DISTANCE
                yield from _aws_secrets(text, raw, begin, scanned)
    yield from _private_keys(raw)


@cache
def _forms() -> tuple[_Form, ...]:
    return (*_OWN, *(form for plugin in _PLUGINS for form in _forms_of(plugin)))


def _forms_of(plugin: type[RegexBasedDetector]) -> Iterator[_Form]:
    name = str(plugin.secret_type).lower().replace(" ", "-")
    expressions = list(plugin.denylist)  # type: ignore[call-overload]
    if plugin is AWSKeyDetector:
        # The second one wants the word "aws" and quotes; `_aws_secrets` finds more.
        expressions = expressions[:1]
    for expression in expressions:
        # RE2 has no look-ahead and no large counts; without them these find no less.
        pattern = expression.pattern.replace(r"(?!\w)", "").replace(",1024}", ",}")
        flags = "(?i)" if expression.flags & re.IGNORECASE else ""
        end = r"\b" if plugin in (AWSKeyDetector, MailchimpDetector, TwilioKeyDetector) else ""
        yield _Form(name, f"{flags}{_BEFORE}({pattern}){end}")


def _aws_secrets(text: str, raw: bytes, begin: int, end: int) -> Iterator[Span]:
    """The secrets that belong to an AWS key id near by: 40 random characters."""
    for match in _AWS_SECRET.finditer(raw, max(0, begin - 40), end):
        token = text[match.start() : match.end()]
        if mixing(token) >= 0.25 and not re.fullmatch(r"[0-9a-f]+|[0-9A-F]+", token):
            yield Span(match.start(), match.end(), "aws-secret-key")


def _private_keys(raw: bytes) -> Iterator[Span]:
    """Private keys in PEM armour, with all of their body; a header alone is no key."""
    done = 0
    for match in over_image(_KEY_HEADER).finditer(raw):
        start, body = match.span()
        if start < done:
            continue
        footer = raw.find(b"-----END ", body, body + _KEY_BODY)
        if footer >= 0 and not _NOT_IN_A_KEY.search(raw, body, footer):
            close = raw.find(b"-----", footer + 9, footer + 100)
            done = close + 5 if close >= 0 else footer + 9
            content = raw[body:footer]
        else:
            found = _KEY_TEXT.match(raw, body)
            done = found.end() if found else body
            content = raw[body:done]
        if re.search(rb"[A-Za-z0-9+/]{8}", content):
            yield Span(start, done, "private-key")
        else:
            done = body
