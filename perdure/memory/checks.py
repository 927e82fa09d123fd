"""What may be remembered at all.

Invariant: nothing that looks like a credential passes here, wherever in an entry it stands; the
refusal names its kind and its place, never itself.
"""

from __future__ import annotations

from datetime import datetime

from perdure.domain.errors import Denied, InvalidArgument, LimitExceeded
from perdure.domain.memory import MAX_CONTENT_BYTES, MemoryEntry, NewEntry, Trust
from perdure.memory.instructions import reads_like_instruction
from perdure.memory.rows import entry_of
from perdure.policy.secrets import find_secrets

_MAX_KEY = 200
_MAX_TAGS = 32
_MAX_TAG = 64


def checked(new: NewEntry, now: datetime) -> MemoryEntry:
    """The entry that `new` becomes; text that reads like an instruction is external, whoever
    brings it.

    Raises:
        Denied: it holds a secret.
        InvalidArgument: its content is blank, or its key or a tag cannot be one.
        LimitExceeded: its content is too large.
    """
    content = new.content.encode(errors="replace").decode()
    size = len(content.encode())
    if size > MAX_CONTENT_BYTES:
        raise LimitExceeded(
            f"The content has {size:,} bytes; the limit is {MAX_CONTENT_BYTES:,}.",
            "Store what matters of it, or write it into a file of the workspace.",
        )
    if not content.strip():
        raise InvalidArgument("The content is blank.", "Say what is to be remembered.")
    key = None if new.key is None else _key(new.key)
    tags = tuple(dict.fromkeys(map(_tag, new.tags)))
    if len(tags) > _MAX_TAGS:
        raise InvalidArgument(f"There are {len(tags)} tags.", f"At most {_MAX_TAGS}.")
    _refuse_secrets({"content": content, "key": key or "", "tags": "\n".join(tags)})
    trust = new.trust
    if trust is Trust.LEARNED and reads_like_instruction(content):
        trust = Trust.EXTERNAL
    changes = {"content": content, "key": key, "tags": tags, "trust": trust}
    return entry_of(new.model_copy(update=changes), now)


def _key(key: str) -> str:
    name = key.strip().removeprefix("memory/")
    parts = name.split("/")
    if not name.isprintable() or len(name) > _MAX_KEY or any(p in ("", ".", "..") for p in parts):
        raise InvalidArgument(
            f"The key {key[:80]!r} cannot be the path of a memory.",
            f"Use up to {_MAX_KEY} printable characters, as in projects/apollo.",
        )
    return name


def _tag(tag: str) -> str:
    name = tag.strip()
    if not name or len(name) > _MAX_TAG or not name.isprintable():
        raise InvalidArgument(
            f"{tag[:80]!r} cannot be a tag.", f"A tag is 1 to {_MAX_TAG} printable characters."
        )
    return name


def _refuse_secrets(texts: dict[str, str]) -> None:
    found = [
        f"{one.kind} in {name}, line {one.line}, characters {one.start + 1} to {one.end}"
        for name, text in texts.items()
        for one in find_secrets(text)
    ]
    if found:
        raise Denied(
            f"Nothing was stored: it looks like a secret ({'; '.join(found[:5])}).",
            "Store where the secret is kept, not the secret.",
        )
