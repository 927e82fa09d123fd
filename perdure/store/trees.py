"""The tree that a run is in, by its path.

Invariant: a subtree is found by an index, however many runs there are.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_

from perdure.store.delegation_tables import runs


def in_subtree(path: str) -> ColumnElement[bool]:
    """The condition that a run is the one with this path, or below it."""
    # A path ends with "/", and "0" is the character after it.
    return and_(runs.c.path >= path, runs.c.path < f"{path[:-1]}0")


def above(path: str) -> list[str]:
    """The ids of the runs above the one with this path, and its own, from the top."""
    return path.split("/")[:-1]
