"""Tool results that are too long to be read at once.

Invariant: what a model reads is within the limit and says so when it was cut; the whole lies in
the workspace, under a name that is the same on every attempt.
"""

from __future__ import annotations

import hashlib
import re

from perdure.domain.errors import PerdureError
from perdure.domain.messages import Frozen
from perdure.workspace.stubs import STUB_BYTES, measure, outline, prefix, stub
from perdure.workspace.workspace import Workspace

#: The folder of a workspace that holds whole results.
FOLDER = "tool-results"

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NAME_CHARACTERS = 80


class Kept(Frozen):
    """A result as the model reads it; `path` is where the whole lies, `bytes` its full size."""

    text: str
    path: str | None
    bytes: int


def keep(workspace: Workspace, name: str, text: str, limit_bytes: int) -> Kept:
    """`text` itself if it fits in `limit_bytes`, else a stub of it.

    The stub of JSON, of a table and of source code is an outline, which takes much less than the
    limit; that of any other text its head and tail around a note. The whole is written to
    `tool-results/<name>`; the same name again replaces it. A result that cannot be written is cut
    all the same, and the note says why: this never raises.
    """
    data = text.encode(errors="replace")
    text = data.decode()
    if len(data) <= limit_bytes:
        return Kept(text=text, path=None, bytes=len(data))
    path, where = _stored(workspace, f"{FOLDER}/{file_name(name)}", data)
    note = f"this result has {measure(text)}, the limit is {limit_bytes} bytes. {where}"
    # An outline of what cannot be read any more would be all that is left of it.
    found = None if path is None else outline(text)
    limit = limit_bytes if found is None else min(limit_bytes, STUB_BYTES)
    return Kept(text=stub(text, note, limit, found), path=path, bytes=len(data))


def file_name(name: str) -> str:
    """A safe file name for `name`: itself where it is one, else marked by its digest."""
    safe = _UNSAFE.sub("-", name).strip(".-")
    if safe and safe == name and len(safe) <= _NAME_CHARACTERS:
        return safe
    digest = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:12]
    return f"{safe[:_NAME_CHARACTERS] or 'result'}-{digest}"


def _stored(workspace: Workspace, path: str, data: bytes) -> tuple[str | None, str]:
    fitting = prefix(data, workspace.file_bytes)
    try:
        # NUL marks a binary file, which the read tool refuses.
        workspace.write(path, fitting.replace("\0", "\N{SYMBOL FOR NULL}"))
    except PerdureError as error:
        return None, f"The rest could not be kept: {error.message}"
    whole = "The whole is" if len(fitting.encode()) == len(data) else "As much as a file holds is"
    return path, f'{whole} in the workspace: use read with path="{path}", or grep in it.'
