"""The trees of runs: which are below a run, and which below a session.

Invariant: a tree is found by an index, however many runs a session has had in its life.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, and_, select

from perdure.store.delegation_tables import runs


def in_subtree(path: str) -> ColumnElement[bool]:
    """The condition that a run is the one with this path, or below it."""
    # A path ends with "/", and "0" is the character after it.
    return and_(runs.c.path >= path, runs.c.path < f"{path[:-1]}0")


def below(*session_keys: str) -> ColumnElement[bool]:
    """The condition that a run is below one of these sessions: it, or a run above it, was spawned
    there."""
    tops = runs.c.parent_key.in_(session_keys)
    tree: Any = select(runs.c.session_key).where(tops).cte(recursive=True)
    tree = tree.union_all(
        select(runs.c.session_key).join(tree, runs.c.parent_key == tree.c.session_key)
    )
    return runs.c.session_key.in_(select(tree.c.session_key))


def above(path: str) -> list[str]:
    """The ids of the runs above the one with this path, and its own, from the top."""
    return path.split("/")[:-1]
