"""Lists by cursor: an opaque word for a place in a list, good for as long as the list is.

Invariant: a cursor names the row after which a page begins, not a number of rows. So a client that
follows `next` reads what was there when it began, each row once, while rows are added.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import datetime
from typing import Annotated, Literal, TypeVar
from urllib.parse import parse_qsl, urlencode

from fastapi import Query, Request, Response
from pydantic import ValidationError

from perdure.domain.errors import InvalidArgument
from perdure.domain.messages import Frozen

#: SQLite and PostgreSQL count in 64 bits; nobody pages so far.
LAST_OFFSET = 2**53
#: A hundred years, in minutes: dates have a beginning.
LONG_AGO = 52_560_000

Cursor = Annotated[
    str | None,
    Query(
        max_length=2_000,
        description="The `next` of the page before; it goes with the same filters, and not with "
        "`offset`.",
    ),
]
Offset = Annotated[
    int,
    Query(
        ge=0,
        le=LAST_OFFSET,
        description="Rows to leave out at the beginning. Pages by offset shift when rows are "
        "added; pages by cursor do not.",
    ),
]


class AtTime(Frozen):
    """The row after which a page of a list in the order of time begins."""

    of: Literal["sessions", "trees", "approvals", "memory", "keys"]
    time: datetime
    id: str


class AtSeq(Frozen):
    """The message beside which a page of a transcript or of an expansion begins."""

    of: Literal["messages", "expansion"]
    seq: int


class AtRun(Frozen):
    """The run after which a page of runs begins."""

    of: Literal["runs"] = "runs"
    id: str


class AtName(Frozen):
    """The schedule after which a page of schedules begins."""

    of: Literal["schedules"] = "schedules"
    tenant: str
    id: str


class AtRank(Frozen):
    """How many of the best a page of a search skips, of what was there when the search began."""

    of: Literal["search"] = "search"
    until: int
    offset: int


Place = TypeVar("Place", AtTime, AtSeq, AtRun, AtRank, AtName)
_Place = AtTime | AtSeq | AtRun | AtRank | AtName


def written(place: _Place) -> str:
    """A place as a cursor."""
    return urlsafe_b64encode(place.model_dump_json().encode()).rstrip(b"=").decode()


def read(cursor: str | None, kind: type[Place], of: str, offset: int = 0) -> Place | None:
    """The place that a cursor names in the list `of`; None without a cursor.

    Raises:
        InvalidArgument: when it is no cursor of this list, or comes with an offset.
    """
    if cursor is None:
        return None
    if offset:
        raise InvalidArgument("A cursor and an offset are two ways to page.", "Send one of them.")
    try:
        text = urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4))
        place = kind.model_validate_json(text)
    except (ValueError, ValidationError) as error:
        raise _unknown() from error
    if place.of != of or not _can_be(place):
        raise _unknown()
    return place


def link_next(request: Request, response: Response, cursor: str | None) -> str | None:
    """Have `response` link to the page that begins at `cursor`, which is returned."""
    if cursor is not None:
        kept = [
            (name, value)
            for name, value in parse_qsl(request.url.query, keep_blank_values=True)
            if name not in ("cursor", "offset")
        ]
        query = urlencode([*kept, ("cursor", cursor)])
        response.headers["Link"] = f'<{request.scope["path"]}?{query}>; rel="next"'
    return cursor


def _can_be(place: _Place) -> bool:
    """Whether a store can look for it."""
    if isinstance(place, AtRank):
        return 0 <= place.until <= LAST_OFFSET and 0 <= place.offset <= LAST_OFFSET
    if isinstance(place, AtSeq):
        return 0 <= place.seq <= LAST_OFFSET
    names = [place.id, place.tenant] if isinstance(place, AtName) else [place.id]
    if not all(name.isprintable() and len(name) <= 600 for name in names):
        return False
    return not isinstance(place, AtTime) or place.time.tzinfo is not None


def _unknown() -> InvalidArgument:
    return InvalidArgument("This is no cursor of this list.", "Send the `next` of a page of it.")
