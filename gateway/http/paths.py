"""What stands in paths and queries beside session keys: ids, each checked before it is looked for.

Invariant: an id that could not be one is refused here, whatever it is of.
"""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import unquote

from fastapi import Depends, Path, Query

from perdure.domain.errors import InvalidArgument
from perdure.domain.keys import SessionKey

#: Whatever makes ids here: no spaces, no control characters, and room in an index.
_ID = re.compile(r"[\x21-\x7e]{1,256}")


async def _run_id(
    run_id: Annotated[
        str,
        Path(
            description="The id of a run.",
            examples=["run_main_01KB7ZJ3T9V0S7F4M2Q8R6X1YC"],
        ),
    ],
) -> str:
    return _checked(run_id)


async def _approval_id(
    approval_id: Annotated[
        str,
        Path(description="The id of an approval.", examples=["apr_01KB7ZJ3T9V0S7F4M2Q8R6X1YC"]),
    ],
) -> str:
    return _checked(approval_id)


async def _node_id(
    node_id: Annotated[
        str,
        Path(
            description="The id of a summary, or of a message.",
            examples=["sum_01KB7ZJ3T9V0S7F4M2Q8R6X1YC"],
        ),
    ],
) -> str:
    return _checked(node_id)


async def _entry_id(
    entry_id: Annotated[
        str,
        Path(
            description="The id of a memory, or its path, `memory/…`; a `/` in it is written "
            "`%2F`.",
            examples=["memory%2Fteam%2Fdeploys"],
        ),
    ],
) -> str:
    name = unquote(entry_id)
    if not name.isprintable() or not 1 <= len(name) <= 1_024:
        raise _no_id()
    return name


async def _asked_session(
    session_key: Annotated[
        str | None,
        Query(description="Only of this session.", examples=["default:bob"], max_length=600),
    ] = None,
) -> str | None:
    return None if session_key is None else str(SessionKey.parse(session_key))


RunIdInPath = Annotated[str, Depends(_run_id)]
ApprovalIdInPath = Annotated[str, Depends(_approval_id)]
NodeIdInPath = Annotated[str, Depends(_node_id)]
EntryIdInPath = Annotated[str, Depends(_entry_id)]
OfSession = Annotated[str | None, Depends(_asked_session)]


def _checked(name: str) -> str:
    name = unquote(name)
    if not _ID.fullmatch(name):
        raise _no_id()
    return name


def _no_id() -> InvalidArgument:
    return InvalidArgument(
        "This cannot be an id.", "An id is as a list shows it, %-encoded where a path needs it."
    )
