"""Places in lists that are ordered by time: where a page begins.

Invariant: a mark is a row's own time and id, so rows that are added or removed do not move it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Column, ColumnElement, and_, or_

from perdure.domain.messages import Frozen


class Mark(Frozen):
    """The row after which a page begins."""

    time: datetime
    id: str


def after(
    mark: Mark, time: Column[Any], name: Column[Any], *, names_descend: bool = False
) -> ColumnElement[bool]:
    """The condition of rows that follow `mark` where the newest comes first, and of those at one
    time the lowest name, or the highest if `names_descend`."""
    beside = name < mark.id if names_descend else name > mark.id
    return or_(time < mark.time, and_(time == mark.time, beside))
