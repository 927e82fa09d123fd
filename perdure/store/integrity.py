"""Whether a session's DAG of summaries is whole, and how it is made so again.

Invariant: a repair loses no message and invents no text. A summary that cannot be trusted is
dropped, and what it stood for comes back: its children, or the messages themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, delete, func, not_, select, update

from perdure.context.summaries import POLICY_VERSION, Summary, summary_id
from perdure.domain.labels import Label, join
from perdure.domain.messages import Frozen
from perdure.domain.states import EventKind
from perdure.store.context_tables import FOREVER, summaries, summary_sources
from perdure.store.database import Database
from perdure.store.rows import summary_of
from perdure.store.session_writer import SessionWriter
from perdure.store.summaries import members_between
from perdure.store.tables import messages

_NODES = (
    select(summaries)
    .where(summaries.c.session_key == bindparam("key"))
    .order_by(summaries.c.epoch, summaries.c.first_seq, summaries.c.depth.desc())
)
_LINKS = (
    select(summary_sources.c.parent_id, summary_sources.c.child_id)
    .where(summary_sources.c.session_key == bindparam("key"))
    .order_by(summary_sources.c.parent_id, summary_sources.c.position)
)
_COVERED = (
    select(
        messages.c.label,
        func.count().label("messages"),
        func.sum(messages.c.tokens).label("tokens"),
        func.min(messages.c.at).label("earliest_at"),
        func.max(messages.c.at).label("latest_at"),
    )
    .where(
        messages.c.session_key == bindparam("key"),
        messages.c.epoch == bindparam("of_epoch"),
        messages.c.seq.between(bindparam("first"), bindparam("last")),
        not_(messages.c.aside),
    )
    .group_by(messages.c.label)
)


_MEMBERS = (
    select(messages.c.id, messages.c.at)
    .where(
        messages.c.session_key == bindparam("key"),
        messages.c.epoch == bindparam("of_epoch"),
        messages.c.seq.between(bindparam("first"), bindparam("last")),
        not_(messages.c.aside),
    )
    .order_by(messages.c.seq)
)


class Fault(StrEnum):
    """What can be wrong with a DAG."""

    #: A link names a parent that is not there.
    DANGLING_LINK = "dangling-link"
    #: A summary was made from one that is not there.
    MISSING_CHILD = "missing-child"
    #: A summary of summaries has none.
    CHILDLESS = "childless"
    #: Children overlap, leave a message between them out, or end elsewhere than their parent.
    NOT_TILED = "not-tiled"
    #: A summary of no message.
    EMPTY = "empty"
    #: What it covers is not what it was made from: its id, which follows from that, is another.
    OTHER_SOURCES = "other-sources"
    #: Two summaries of a context cover the same message.
    OVERLAP = "overlap"
    #: Out of the context although nothing has replaced it.
    HIDDEN = "hidden"
    #: In the context together with the one that replaced it, or for other turns than it says.
    NOT_REPLACED = "not-replaced"
    #: A count, a label or a time that is not that of what is covered.
    WRONG_FACTS = "wrong-facts"


class Finding(Frozen):
    """One fault; `repair` is what mends it, or has mended it."""

    fault: Fault
    summary_id: str
    detail: str
    repair: str


class _Mend(NamedTuple):
    """A finding with the change that mends it: `drop` a node or a link, or `set` columns."""

    finding: Finding
    drop_link: bool = False
    set: dict[str, Any] | None = None


class _Dag:
    """All nodes of a session and their links, in memory, without the texts of messages."""

    def __init__(self, connection: Connection, session_key: str) -> None:
        self.connection = connection
        self.key = session_key
        place = {"key": session_key}
        rows = connection.execute(_NODES, place).all()
        self.nodes = {row.id: summary_of(row) for row in rows}
        self.made_at = {row.id: row.created_at for row in rows}
        self.children: dict[str, list[str]] = {}
        self.parents: dict[str, str] = {}
        for link in connection.execute(_LINKS, place):
            self.children.setdefault(link.parent_id, []).append(link.child_id)
            self.parents[link.child_id] = link.parent_id

    def span(self, node: Summary) -> dict[str, Any]:
        """Where a node's messages lie."""
        ends = {"first": node.first_seq, "last": node.last_seq}
        return {"key": self.key, "of_epoch": node.epoch, **ends}


async def check(database: Database, session_key: str) -> list[Finding]:
    """What is wrong with a session's DAG; nothing is changed. An unknown session has none."""
    return await database.read(_check, session_key)


async def mend(database: Database, session_key: str) -> list[Finding]:
    """Mend a session's DAG in one transaction, and tell what was wrong."""
    return await database.write(_mend, session_key)


def _check(connection: Connection, session_key: str) -> list[Finding]:
    dag = _Dag(connection, session_key)
    # What covers the wrong messages has wrong figures too: the cause is told, not what follows.
    return [mend.finding for mend in [*_structure(dag)] or _facts(dag)]


def _mend(connection: Connection, session_key: str) -> list[Finding]:
    findings: list[Finding] = []
    # Each round drops a node or a link, or sets right what the next round finds right.
    while mends := _structure(_Dag(connection, session_key)):
        first = mends[0].finding.fault
        # Of two that overlap, dropping one may be enough.
        alike = [one for one in mends if one.finding.fault is first]
        for mend in alike[:1] if first is Fault.OVERLAP else alike:
            findings.append(mend.finding)
            _apply(connection, session_key, mend)
    for mend in list(_facts(_Dag(connection, session_key))):
        findings.append(mend.finding)
        _apply(connection, session_key, mend)
    if findings:
        with SessionWriter(connection, session_key) as session:
            faults = sorted({finding.fault for finding in findings})
            session.tell(EventKind.CONTEXT_REPAIRED, faults=faults, findings=len(findings))
    return findings


def _structure(dag: _Dag) -> list[_Mend]:
    """Faults of shape. Those that may follow from others are told once the others are mended."""
    nodes = dag.nodes.values()
    found = [*_dangling(dag), *(mend for node in nodes for mend in _broken(dag, node))]
    return found or [mend for node in nodes for mend in _misplaced(dag, node)] or [*_overlaps(dag)]


def _dangling(dag: _Dag) -> Iterator[_Mend]:
    for child, parent in dag.parents.items():
        if parent not in dag.nodes:
            yield _Mend(
                Finding(
                    fault=Fault.DANGLING_LINK,
                    summary_id=parent,
                    detail=f"{child} is said to be part of {parent}, which is not there.",
                    repair="The link is dropped.",
                ),
                drop_link=True,
            )


def _overlaps(dag: _Dag) -> Iterator[_Mend]:
    in_context = [node for node in dag.nodes.values() if node.id not in dag.parents]
    for one, other in pairwise(in_context):
        if one.epoch == other.epoch and other.first_seq <= one.last_seq:
            less = min(one, other, key=lambda node: (node.depth, node.messages))
            yield _drop(dag, less, Fault.OVERLAP, f"{one.id} and {other.id} cover the same seqs.")


def _broken(dag: _Dag, node: Summary) -> Iterator[_Mend]:
    """What makes a node untrustworthy."""
    names = dag.children.get(node.id, [])
    children = [dag.nodes[name] for name in names if name in dag.nodes]
    if len(children) < len(names):
        missing = ", ".join(name for name in names if name not in dag.nodes)
        yield _drop(dag, node, Fault.MISSING_CHILD, f"It was made from {missing}: not there.")
    elif node.depth > 0 and not children:
        yield _drop(dag, node, Fault.CHILDLESS, "It says of what depth it is, not of what.")
    elif node.depth > 0 and not _tiled(dag, node, children):
        yield _drop(dag, node, Fault.NOT_TILED, "Its parts do not make up what it covers.")
    elif node.depth == 0 and not _covers_any(dag, node):
        yield _drop(dag, node, Fault.EMPTY, f"No message lies in {node.first_seq}–{node.last_seq}.")
    elif node.id not in _ids(dag, node, names):
        yield _drop(dag, node, Fault.OTHER_SOURCES, "It was made from something else.")


def _ids(dag: _Dag, node: Summary, children: list[str]) -> set[str]:
    """The ids it may have. A leaf may cover results that came after it was made."""
    sources = [children]
    if node.depth == 0:
        members = dag.connection.execute(_MEMBERS, dag.span(node)).all()
        made = dag.made_at[node.id]
        sources = [[m.id for m in members], [m.id for m in members if m.at <= made]]
    return {
        summary_id(dag.key, node.epoch, node.depth, made_from, version)
        for made_from in sources
        for version in range(1, POLICY_VERSION + 1)
    }


def _tiled(dag: _Dag, node: Summary, children: list[Summary]) -> bool:
    ends = (children[0].first_seq, children[-1].last_seq)
    if ends != (node.first_seq, node.last_seq) or any(c.epoch != node.epoch for c in children):
        return False
    return all(
        older.last_seq < newer.first_seq
        and not members_between(
            dag.connection, dag.key, node.epoch, older.last_seq, newer.first_seq
        )
        for older, newer in pairwise(children)
    )


def _covers_any(dag: _Dag, node: Summary) -> bool:
    return members_between(
        dag.connection, dag.key, node.epoch, node.first_seq - 1, node.last_seq + 1
    )


def _misplaced(dag: _Dag, node: Summary) -> Iterator[_Mend]:
    """A node that is seen, or not, by the wrong turns."""
    parent = dag.nodes.get(dag.parents.get(node.id, ""))
    until = None if parent is None else parent.from_turn
    if node.until_turn == until:
        return
    if parent is None:
        fault, detail = Fault.HIDDEN, f"It ends at turn {node.until_turn}, and nothing follows it."
    else:
        fault = Fault.NOT_REPLACED
        detail = f"{parent.id} took its place at turn {until}; it ends at {node.until_turn}."
    yield _Mend(
        Finding(
            fault=fault,
            summary_id=node.id,
            detail=detail,
            repair="It is in the context until what it is part of is.",
        ),
        set={"until_turn": FOREVER if until is None else until},
    )


def _facts(dag: _Dag) -> Iterator[_Mend]:
    """Figures that are not those of what is covered, from the leaves upwards."""
    true: dict[str, Summary] = {}
    for node in sorted(dag.nodes.values(), key=lambda one: (one.depth, -one.from_turn)):
        facts = _of_messages(dag, node) if node.depth == 0 else _of_children(dag, node, true)
        if facts is None:
            continue
        true[node.id] = node.model_copy(update=facts)
        wrong = {name: value for name, value in facts.items() if getattr(node, name) != value}
        if wrong:
            told = ", ".join(
                f"{name} is {getattr(node, name)}, not {value}" for name, value in wrong.items()
            )
            yield _Mend(
                Finding(
                    fault=Fault.WRONG_FACTS,
                    summary_id=node.id,
                    detail=f"Of what it covers, {told}.",
                    repair="The figures are put right.",
                ),
                set=wrong,
            )


def _of_messages(dag: _Dag, node: Summary) -> dict[str, Any] | None:
    groups = dag.connection.execute(_COVERED, dag.span(node)).all()
    if not groups:
        return None
    return {
        "messages": sum(group.messages for group in groups),
        "source_tokens": sum(group.tokens for group in groups),
        "label": join(*(Label(group.label) for group in groups)),
        "earliest_at": min(group.earliest_at for group in groups),
        "latest_at": max(group.latest_at for group in groups),
    }


def _of_children(dag: _Dag, node: Summary, true: dict[str, Summary]) -> dict[str, Any] | None:
    children = [true[name] for name in dag.children.get(node.id, []) if name in true]
    if not children:
        return None
    return {
        "messages": sum(child.messages for child in children),
        "source_tokens": sum(child.tokens for child in children),
        "label": join(*(child.label for child in children)),
        "earliest_at": min(child.earliest_at for child in children),
        "latest_at": max(child.latest_at for child in children),
    }


def _drop(dag: _Dag, node: Summary, fault: Fault, detail: str) -> _Mend:
    back = "its parts come" if dag.children.get(node.id) else "its messages come"
    return _Mend(
        Finding(
            fault=fault,
            summary_id=node.id,
            detail=detail,
            repair=f"It is dropped, with what was made of it; {back} back.",
        )
    )


def _apply(connection: Connection, session_key: str, mend: _Mend) -> None:
    node = mend.finding.summary_id
    if mend.set is not None:
        connection.execute(
            update(summaries)
            .where(summaries.c.session_key == session_key, summaries.c.id == node)
            .values(mend.set)
        )
    elif mend.drop_link:
        _unlink(connection, session_key, node)
    else:
        _remove(connection, session_key, node)


def _remove(connection: Connection, session_key: str, node: str) -> None:
    """Drop a node, and before it whatever was made of it."""
    parent = connection.scalar(
        select(summary_sources.c.parent_id).where(
            summary_sources.c.session_key == session_key, summary_sources.c.child_id == node
        )
    )
    if parent is not None:
        _remove(connection, session_key, parent)
    _unlink(connection, session_key, node)
    connection.execute(
        delete(summaries).where(summaries.c.session_key == session_key, summaries.c.id == node)
    )


def _unlink(connection: Connection, session_key: str, parent: str) -> None:
    connection.execute(
        delete(summary_sources).where(
            summary_sources.c.session_key == session_key, summary_sources.c.parent_id == parent
        )
    )
