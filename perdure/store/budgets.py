"""What runs may use: reserved before a step, counted after it.

Invariant: a run and all below it share its budget. A step begins only if what the subtree has used,
what its other steps have reserved and what this one may take fit into the budget of the run and of
every run above it; so a budget is exceeded at most by what an answer has more than its reserve.
What was used is counted in the sessions, in the transaction of each answer, and nowhere else.
"""

from __future__ import annotations

from typing import TypeVar

from sqlalchemy import Connection, bindparam, func, select, update

from perdure.domain.messages import Frozen
from perdure.store.database import Database
from perdure.store.delegation_tables import runs
from perdure.store.tables import sessions
from perdure.store.trees import above, in_subtree

Number = TypeVar("Number", int, float)

#: Statements are built once: building them anew costs more than running them.
_PATH = select(runs.c.path).where(runs.c.session_key == bindparam("key"))
_RESERVE = (
    update(runs)
    .where(runs.c.session_key == bindparam("key"))
    .values(reserved_tokens=bindparam("tokens"), reserved_cost=bindparam("cost"))
)


class Need(Frozen):
    """What a step may take: tokens, and US dollars, None where no price is known."""

    tokens: int
    cost: float | None = None


class Left(Frozen):
    """What is left for a run, of its own budget and of those above it; None without a budget."""

    tokens: int | None = None
    cost: float | None = None

    def holds(self, need: Need) -> bool:
        """Whether a step fits."""
        return (self.tokens is None or need.tokens <= self.tokens) and (
            # Where no price is known, what was spent is all that can be told.
            self.cost is None or ((need.cost or 0.0) <= self.cost and self.cost > 0)
        )


class Budgets:
    """The budgets of runs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def reserve(self, session_key: str, need: Need) -> Left:
        """Reserve what a step of a run may take, in place of what was reserved for it before, if
        it `holds`; what was left for it. A session that is no run has no budget."""
        return await self._database.write(_reserve, session_key, need)

    async def release(self, session_key: str) -> None:
        """Let go what was reserved: what the step took is counted, or it took nothing."""
        await self._database.write(_release, session_key)


def smaller(one: Number | None, other: Number | None) -> Number | None:
    """The smaller of two bounds; None is no bound."""
    return min((bound for bound in (one, other) if bound is not None), default=None)


def left(connection: Connection, path: str) -> Left:
    """What is left for a step of the run with this path: what it has reserved itself counts."""
    own = above(path)[-1]
    bounded = connection.execute(
        select(runs.c.path, runs.c.token_budget, runs.c.cost_budget).where(
            runs.c.run_id.in_(above(path)),
            runs.c.token_budget.is_not(None) | runs.c.cost_budget.is_not(None),
        )
    ).all()
    tokens: int | None = None
    cost: float | None = None
    for row in bounded:
        used = _used(connection, row.path, own)
        if row.token_budget is not None:
            tokens = smaller(tokens, row.token_budget - used.tokens)
        if row.cost_budget is not None:
            cost = smaller(cost, row.cost_budget - (used.cost or 0.0))
    return Left(tokens=tokens, cost=cost)


def _used(connection: Connection, path: str, but: str) -> Need:
    """What a subtree has used and reserved, without the reserve of the run `but`."""
    row = connection.execute(
        select(
            func.sum(sessions.c.input_tokens + sessions.c.output_tokens).label("tokens"),
            func.sum(sessions.c.cost).label("cost"),
        )
        .join(runs, runs.c.session_key == sessions.c.session_key)
        .where(in_subtree(path))
    ).one()
    reserved = connection.execute(
        select(
            func.sum(runs.c.reserved_tokens).label("tokens"),
            func.sum(runs.c.reserved_cost).label("cost"),
        ).where(in_subtree(path), runs.c.run_id != but)
    ).one()
    return Need(
        tokens=(row.tokens or 0) + (reserved.tokens or 0),
        cost=(row.cost or 0.0) + (reserved.cost or 0.0),
    )


def _reserve(connection: Connection, session_key: str, need: Need) -> Left:
    path = connection.scalar(_PATH, {"key": session_key})
    if path is None:
        return Left()
    found = left(connection, path)
    if found != Left() and found.holds(need):
        reserved = {"tokens": need.tokens, "cost": need.cost or 0.0}
        connection.execute(_RESERVE, {"key": session_key, **reserved})
    return found


def _release(connection: Connection, session_key: str) -> None:
    connection.execute(_RESERVE, {"key": session_key, "tokens": 0, "cost": 0.0})
