"""Secrets are recognised by the name of their key or by their place in a URL, and never shown."""

from __future__ import annotations

import re

MASK = "***"

_SECRET_WORD = re.compile(r"(^|[_-])(key|token|secret|password|passwd|credential)s?($|[_-])", re.I)
#: Greedy up to the last @: a password that holds an unescaped "@" or "/" is hidden whole.
_URL_PASSWORD = re.compile(r"(://[^:\s]*):.*@")
_URL_PARAMETER = re.compile(
    r"([?&][^=&\s]*(?:password|passwd|token|secret|key)[^=&\s]*=)[^&\s]*", re.IGNORECASE
)


def mask(name: str, value: object) -> object:
    """The value of a key called `name` as it may be shown: without the password of a URL, or `***`.

    Numbers are shown whatever their key is named, since `context_tokens` is no secret.
    """
    if isinstance(value, list):
        return [mask(name, item) for item in value]
    if not isinstance(value, str):
        return value
    if _SECRET_WORD.search(name):
        return MASK
    return _URL_PARAMETER.sub(rf"\1{MASK}", _URL_PASSWORD.sub(rf"\1:{MASK}@", value))
