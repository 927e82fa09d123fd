"""What calls wait for, and the rings that waits may not close.

Invariant: at no moment do the open waits hold a ring. Each is opened in the transaction that
looks for one, and transactions that write follow one another, so of the waits that would make a
ring together the last is the one refused: no probe has to travel, and nobody hangs.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from perdure.domain.errors import Deadlock
from perdure.domain.labels import Label, can_flow
from perdure.domain.states import SessionState
from perdure.domain.steps import ToolRequest
from perdure.store.clock import now
from perdure.store.delegation_tables import waits
from perdure.store.session_writer import SessionWriter
from perdure.store.tables import sessions

_CLOSE_TURN = delete(waits).where(
    waits.c.session_key == bindparam("key"), waits.c.turn == bindparam("of_turn")
)
_PLACE = ("session_key", "turn", "step", "call")
_CLOSE_CALL = delete(waits).where(*(waits.c[name] == bindparam(f"of_{name}") for name in _PLACE))
_TARGETS = select(waits.c.target_key).where(
    waits.c.session_key == bindparam("key"), waits.c.until > bindparam("at")
)


def open_wait(
    session: SessionWriter,
    request: ToolRequest,
    targets: Sequence[str],
    until: datetime,
    *,
    level: Label,
) -> None:
    """Record that a call waits for sessions, until a moment at most.

    Raises:
        Deadlock: when one of them waits for this session, itself or through others. The ring is
            named as far as `level` may see it.
    """
    for target in targets:
        ring = _ring(session.connection, session.key, target)
        if ring is not None:
            shown = _shown(session.connection, ring, level)
            raise Deadlock(
                f"Waiting for {shown[1]} would close a ring in which everyone waits for the next: "
                f"{' → '.join(shown)}.",
                "Answer first, or send without waiting.",
            )
    close_call(session, request)
    place = request.model_dump(include=set(_PLACE))
    if targets:
        session.connection.execute(
            insert(waits), [{**place, "target_key": target, "until": until} for target in targets]
        )
    session.change(state=SessionState.WAITING)


def close_call(session: SessionWriter, request: ToolRequest) -> None:
    """End the waits of a call: it has its result."""
    place = {f"of_{name}": getattr(request, name) for name in _PLACE}
    closed = session.connection.execute(_CLOSE_CALL, place).rowcount
    if closed and not _count(session.connection, session.key):
        session.change(state=SessionState.RUNNING)


def move(connection: Connection, target: str, successor: str) -> None:
    """Have all waits for a run go on for the one that takes its place."""
    connection.execute(
        update(waits).where(waits.c.target_key == target).values(target_key=successor)
    )


def close(session: SessionWriter, turn: int) -> None:
    """End the waits of a turn."""
    session.connection.execute(_CLOSE_TURN, {"key": session.key, "of_turn": turn})


def _ring(connection: Connection, mine: str, target: str) -> list[str] | None:
    """The way from `mine` over `target` back to `mine`, if the open waits make one."""
    came_from: dict[str, str] = {target: mine}
    front = [target]
    while front:
        at = front.pop()
        if at == mine:
            path = [mine]
            while True:
                at = came_from[at]
                path.append(at)
                if at == mine:
                    return path[::-1]
        for reached in connection.scalars(_TARGETS, {"key": at, "at": now()}):
            if reached not in came_from:
                came_from[reached] = at
                front.append(reached)
    return None


def _shown(connection: Connection, ring: list[str], level: Label) -> list[str]:
    labels = dict(
        connection.execute(
            select(sessions.c.session_key, sessions.c.label).where(sessions.c.session_key.in_(ring))
        ).all()
    )
    return [
        key if can_flow(Label(labels.get(key, Label.PUBLIC)), level) else "another session"
        for key in ring
    ]


def _count(connection: Connection, session_key: str) -> int:
    query = select(func.count()).where(waits.c.session_key == session_key)
    return int(connection.scalar(query) or 0)
