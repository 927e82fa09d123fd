"""Text of others inside our own markup.

Invariant: after `escaped`, no text can open or close a tag, whatever it says, and `unescaped`
gives back what it was. Models copy what they read, so what they write is taken back the same way;
otherwise every depth of summaries would escape the escapes of the one below.
"""

from __future__ import annotations


def escaped(text: str) -> str:
    """`text` without a sign that could begin a tag."""
    return text.replace("&", "&amp;").replace("<", "&lt;")


def unescaped(text: str) -> str:
    """What `escaped` was given."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def attribute(text: str, limit: int = 120) -> str:
    """`text` as a short word inside a tag: on one line, without quotes, at most `limit` long."""
    line = " ".join(text.split()).replace('"', "'")
    return escaped(line[:limit]).replace(">", "&gt;")
