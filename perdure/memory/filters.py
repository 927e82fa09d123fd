"""Conditions on rows, as the index evaluates them before it ranks.

Invariant: a value is quoted here or it is no part of a condition.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from perdure.domain.memory import View
from perdure.memory.analysis import required_terms
from perdure.memory.rows import SHOWN, SUPERSEDED, session_digest
from perdure.search import And, Node, Not, Or, Phrase, Prefix, Query, Term

EVERYTHING = "true"


def quoted(value: str) -> str:
    """`value` as a literal of SQL."""
    return "'" + value.replace("'", "''") + "'"


def among(column: str, values: Iterable[str]) -> str:
    """The column has one of the values."""
    listed = ", ".join(map(quoted, values))
    return f"{column} IN ({listed})" if listed else "false"


def has_term(term: str) -> str:
    """An entry has the term."""
    return f"contains(terms, {quoted(f' {term} ')})"


def seen(view: View, *, superseded: bool = False) -> str:
    """What a viewer is shown, labels aside: those have tables of their own."""
    levels = [SHOWN, SUPERSEDED] if superseded else [SHOWN]
    if view.session_key is not None:
        levels.append(session_digest(view.session_key, ""))
    conditions = [among("shown", levels)]
    if view.agent is not None:
        conditions.append(f"agent = {quoted(view.agent)}")
    if view.memory_type is not None:
        conditions.append(f"memory_type = {quoted(view.memory_type)}")
    if view.trust is not None:
        conditions.append(f"trust = {quoted(view.trust)}")
    conditions += [f"array_has(tags, {quoted(tag)})" for tag in view.tags]
    return " AND ".join(conditions)


def follows(time: datetime, name: str, *, newest: bool) -> str:
    """The condition of entries that follow the one of this time and id, in the order of time."""
    then = f"timestamp {quoted(time.astimezone(UTC).strftime('%Y-%m-%d %H:%M:%S.%f'))}"
    beyond = "<" if newest else ">"
    return f"(created_at {beyond} {then} OR (created_at = {then} AND id > {quoted(name)}))"


def is_strict(query: Query) -> bool:
    """Whether a query says more than which words it is about: an operator, a phrase, a prefix."""
    root = query.root
    parts = root.parts if isinstance(root, And) else (root,)
    return not all(isinstance(part, Term) for part in parts)


def may_match(node: Node) -> str:
    """A condition that every text that matches `node` meets; others may meet it, too."""
    match node:
        case And(parts):
            return _joined(" AND ", [may_match(part) for part in parts])
        case Or(parts):
            told = [may_match(part) for part in parts]
            return EVERYTHING if EVERYTHING in told else _joined(" OR ", told)
        case Not():
            return EVERYTHING
        case Term(text) | Phrase(text):
            return _joined(" AND ", list(map(has_term, required_terms(text))))
        case Prefix(text):
            return _joined(" AND ", list(map(has_term, required_terms(text, whole=False))))


def _joined(operator: str, conditions: list[str]) -> str:
    told = [one for one in conditions if one != EVERYTHING]
    if not told:
        return EVERYTHING
    return "(" + operator.join(dict.fromkeys(told)) + ")"
