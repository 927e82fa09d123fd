"""Tool results that are too long to be read at once.

Invariant: what a model reads is within the limit and says so when it was cut; the whole lies in
the workspace, under a name that is the same on every attempt.
"""

from __future__ import annotations

import hashlib
import re

from perdure.domain.errors import PerdureError
from perdure.domain.messages import Frozen
from perdure.workspace.workspace import Workspace

#: The folder of a workspace that holds whole results.
FOLDER = "tool-results"

#: The beginning of a result says most of what it is; the end, how it came out.
HEAD_SHARE = 0.6

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_CHARACTERS = 80


class Kept(Frozen):
    """A result as the model reads it; `path` is where the whole lies, `bytes` its full size."""

    text: str
    path: str | None
    bytes: int


def keep(workspace: Workspace, name: str, text: str, limit_bytes: int) -> Kept:
    """`text` itself if it fits in `limit_bytes`, else its head and tail around a note.

    The whole is written to `tool-results/<name>`; the same name again replaces it. A result
    that cannot be written is cut all the same, and the note says why: this never raises.
    """
    data = text.encode(errors="replace")
    if len(data) <= limit_bytes:
        return Kept(text=data.decode(), path=None, bytes=len(data))
    path, where = _stored(workspace, f"{FOLDER}/{file_name(name)}", data)
    note = (
        f"\n\n[… cut: this result has {len(data)} bytes, the limit is {limit_bytes}. {where}]\n\n"
    )
    return Kept(text=_cut(data, note, limit_bytes), path=path, bytes=len(data))


def file_name(name: str) -> str:
    """A safe file name for `name`: itself where it is one, else marked by its digest."""
    safe = _UNSAFE.sub("-", name).strip(".-")
    if safe and safe == name and len(safe) <= _NAME_CHARACTERS:
        return safe
    digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:12]
    return f"{safe[:_NAME_CHARACTERS] or 'result'}-{digest}"


def _stored(workspace: Workspace, path: str, data: bytes) -> tuple[str | None, str]:
    fitting = _prefix(data, workspace.file_bytes)
    try:
        # NUL marks a binary file, which the read tool refuses.
        workspace.write(path, fitting.replace("\0", "\N{SYMBOL FOR NULL}"))
    except PerdureError as error:
        return None, f"The rest could not be kept: {error.message}"
    whole = "The whole is" if len(fitting.encode()) == len(data) else "As much as a file holds is"
    return path, f'{whole} in the workspace: use read with path="{path}", or grep in it.'


def _cut(data: bytes, note: str, limit: int) -> str:
    room = limit - len(note.encode())
    if room <= 0:
        return _prefix(note.encode(), limit)
    head = int(room * HEAD_SHARE)
    return _prefix(data, head) + note + _suffix(data, room - head)


def _prefix(data: bytes, size: int) -> str:
    # Only a character cut in two is ignored: the data is valid.
    return data[: max(size, 0)].decode(errors="ignore")


def _suffix(data: bytes, size: int) -> str:
    return data[len(data) - size :].decode(errors="ignore")
